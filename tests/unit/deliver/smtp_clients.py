"""Dialogues at the point where a test begins, and transactions for them."""

from __future__ import annotations

from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options, Result, Transaction
from mqcd.deliver.smtp.states import State

HELLO = b"220 ready\r\n"
PLAIN = b"250-mx\r\n250-SIZE 1000\r\n250 8BITMIME\r\n"
PIPED = b"250-mx\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n"


def offer(*extensions: str) -> bytes:
    """An answer to EHLO."""
    return "".join(f"250-{line}\r\n" for line in ("mx", *extensions)).encode() + b"250 HELP\r\n"


def ready(ehlo: bytes = PIPED, options: Options | None = None) -> SmtpClient:
    """A session that is ready for mail; nothing is left to be sent."""
    client = greeted(options)
    client.receive(ehlo)
    assert client.state is State.READY
    return client


def greeted(options: Options | None = None) -> SmtpClient:
    """A session that has said hello."""
    options = options or Options(hello="me.example")
    client = SmtpClient(options)
    client.receive(HELLO)
    verb = b"LHLO" if options.lmtp else b"HELO" if options.say_helo else b"EHLO"
    assert client.take() == verb + b" me.example\r\n"
    return client


def mail(*recipients: str, size: int = 10, eight: bool = False, smtputf8: bool = False) -> Transaction:
    """A message from one sender to these recipients."""
    return Transaction(
        sender="from@example.org",
        recipients=recipients or ("to@example.com",),
        size=size,
        eight=eight,
        smtputf8=smtputf8,
    )


def results(client: SmtpClient) -> list[Result]:
    """What became of each recipient."""
    return [outcome.result for outcome in client.outcomes]
