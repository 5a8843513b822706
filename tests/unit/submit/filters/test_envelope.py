"""The envelope of the hooks beside the door's transaction: after each step both have the same recipients."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from aiosmtpd.smtp import Envelope

from mqcd.core.errors import DecodeError
from mqcd.submit.esmtp.parameters import MailParameters
from mqcd.submit.esmtp.transaction import Transaction
from mqcd.submit.filters.envelope import HookEnvelope


@dataclass
class Server:
    envelope: Envelope = field(default_factory=Envelope)


def announced(*addresses: str) -> tuple[Server, HookEnvelope, Transaction]:
    """A message of which these recipients are accepted as they are; the last one is only offered."""
    server, transaction = Server(), Transaction("a@example.net", MailParameters())
    server.envelope.mail_from = transaction.sender
    hooked = HookEnvelope(server)
    for number, address in enumerate(addresses):
        transaction.add(address, f"ORCPT={number}")
        hooked.offer()
        if number < len(addresses) - 1:
            server.envelope.rcpt_tos.append(address)
            hooked.left(transaction, offered=True).enter(transaction)
    return server, hooked, transaction


@pytest.mark.parametrize(
    ("left", "dsn"),
    [
        ("one two", "0 1"),
        ("one", "0"),
        ("one x y", "0 1 1"),
        ("x one", "1 0"),
        ("two one two", "1 0 1"),
        ("one one", "0 1"),
        ("", ""),
    ],
)
def test_recipients_keep_their_parameters_and_new_ones_have_the_offered(left: str, dsn: str) -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.rcpt_tos = [f"{each}@example.com" for each in left.split()]
    hooked.left(transaction, offered=True).enter(transaction)
    assert transaction.recipients == server.envelope.rcpt_tos
    assert transaction.recipient_dsn == [f"ORCPT={each}" for each in dsn.split()]
    assert transaction.octets == sum(map(len, (*transaction.recipients, *transaction.recipient_dsn)))


def test_what_earlier_hooks_have_added_has_no_parameters() -> None:
    server, hooked, transaction = announced()
    server.envelope.rcpt_tos.append("archive@example.com")
    transaction.add("one@example.com", "ORCPT=0")
    hooked.offer()
    server.envelope.rcpt_tos.append("one@example.com")
    hooked.left(transaction, offered=True).enter(transaction)
    assert transaction.recipients == server.envelope.rcpt_tos
    assert transaction.recipient_dsn == ["", "ORCPT=0"]


def test_what_is_taken_back_leaves_both_as_before() -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.mail_from = "other@example.net"
    server.envelope.rcpt_tos.append("nowhere")
    with pytest.raises(DecodeError):
        hooked.left(transaction, offered=True)
    hooked.take_back()
    assert transaction.take_back() == "two@example.com"
    assert transaction.recipients == server.envelope.rcpt_tos == ["one@example.com"]
    assert transaction.recipient_dsn == ["ORCPT=0"]
    assert transaction.sender == server.envelope.mail_from == "a@example.net"


def test_unchanged_content_is_not_copied() -> None:
    server, hooked, _ = announced()
    server.envelope.content = b"Subject: a\r\n\r\nb\r\n"
    assert hooked.content() is server.envelope.content
