"""Dialogues at the point where a test begins, and transactions for them."""

from __future__ import annotations

from mqcd.deliver.smtp.dialogue import Dialogue
from mqcd.deliver.smtp.exchange import Manners, Result, State, Transaction

HELLO = b"220 ready\r\n"
PLAIN = b"250-mx\r\n250-SIZE 1000\r\n250 8BITMIME\r\n"
PIPED = b"250-mx\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n"


def offer(*extensions: str) -> bytes:
    """An answer to EHLO."""
    return "".join(f"250-{line}\r\n" for line in ("mx", *extensions)).encode() + b"250 HELP\r\n"


def ready(ehlo: bytes = PIPED, manners: Manners | None = None) -> Dialogue:
    """A session that is ready for mail; nothing is left to be sent."""
    dialogue = greeted(manners)
    dialogue.receive(ehlo)
    assert dialogue.state is State.READY
    return dialogue


def greeted(manners: Manners | None = None) -> Dialogue:
    """A session that has said hello."""
    manners = manners or Manners(hello="me.example")
    dialogue = Dialogue(manners)
    dialogue.receive(HELLO)
    verb = b"LHLO" if manners.lmtp else b"HELO" if manners.say_helo else b"EHLO"
    assert dialogue.take() == verb + b" me.example\r\n"
    return dialogue


def mail(*recipients: str, size: int = 10, eight: bool = False, smtputf8: bool = False) -> Transaction:
    """A message from one sender to these recipients."""
    return Transaction(
        sender="from@example.org",
        recipients=recipients or ("to@example.com",),
        size=size,
        eight=eight,
        smtputf8=smtputf8,
    )


def results(dialogue: Dialogue) -> list[Result]:
    """What became of each recipient."""
    return [outcome.result for outcome in dialogue.outcomes]
