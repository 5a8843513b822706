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
    hooked = HookEnvelope(server)
    for number, address in enumerate(addresses):
        transaction.recipients.append(address)
        transaction.recipient_dsn.append(f"ORCPT={number}")
        assert hooked.offer_recipient(transaction) == address
        if number < len(addresses) - 1:
            hooked.add_recipient(address, [])
            hooked.accept(transaction)
    return server, hooked, transaction


def test_added_recipients_have_the_parameters_of_the_offered_one() -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.rcpt_tos += ["x@example.com", "y@example.com"]
    hooked.accept(transaction)
    assert transaction.recipients == ["one@example.com", "x@example.com", "y@example.com"]
    assert transaction.recipient_dsn == ["ORCPT=0", "ORCPT=1", "ORCPT=1"]


def test_a_hook_may_replace_earlier_recipients() -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.rcpt_tos[:] = ["x@example.com", "one@example.com"]
    hooked.accept(transaction)
    assert transaction.recipients == ["x@example.com", "one@example.com"]
    assert transaction.recipient_dsn == ["", "ORCPT=1"]


def test_a_refused_recipient_leaves_both_as_before() -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.rcpt_tos.append("two@example.com")
    hooked.refuse()
    assert transaction.recipients == server.envelope.rcpt_tos == ["one@example.com"]
    assert transaction.recipient_dsn == ["ORCPT=0"]


def test_what_is_no_address_changes_nothing() -> None:
    server, hooked, transaction = announced("one@example.com", "two@example.com")
    server.envelope.rcpt_tos.append("nowhere")
    with pytest.raises(DecodeError):
        hooked.accept(transaction)
    hooked.refuse()
    assert transaction.recipients == server.envelope.rcpt_tos == ["one@example.com"]
