"""Submissions as octets between shards, and back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Body, Envelope, Key, Origin, Submission
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.daemon.shards import handed

KEY = Key(name=bytes(range(16)), digest=bytes(8))


def test_a_head_says_what_was_submitted() -> None:
    envelope = Envelope(
        spid=(1 << 64) - 1,
        sender="é|@example.org",
        received=5,
        origin=Origin.SMTP,
        body=Body.EIGHT,
        smtputf8=True,
        user="a b",
        release=7,
        priority=-9,
        labels="tenant=x",
        session="s1",
        message_id="<x@y>",
    )
    submission = Submission(
        envelope=envelope,
        recipients=("a@b", "ü@c"),
        content=b"x",
        recipient_dsn=("", "NOTIFY=NEVER"),
        key=KEY,
    )
    head = handed.decode_head(handed.encode_head(submission, KEY)[4:])
    again = head.submission
    assert (again.key, head.whole) == (head.key, True)
    assert head.key.name == KEY.name
    assert (again.envelope, tuple(again.recipients), tuple(again.recipient_dsn)) == (
        envelope,
        submission.recipients,
        submission.recipient_dsn,
    )
    assert (again.envelope.session, again.envelope.message_id) == ("s1", "<x@y>")


def test_a_reply_says_what_the_owner_said() -> None:
    assert handed.decode_reply(handed.encode_taken(12, 34)[4:]) == (12, 34)
    with pytest.raises(StoreUnavailable, match="full"):
        handed.decode_reply(handed.encode_refused(StoreUnavailable("full"))[4:])
    reply = Reply(code=554, status="5.5.4", text="no")
    with pytest.raises(Refused) as refused:
        handed.decode_reply(handed.encode_refused(Refused(reply))[4:])
    assert refused.value.reply == reply


@given(st.one_of(st.binary(max_size=100), st.sampled_from([b"{}", b"[]", b'{"envelope":{}}', b'{"code":1}'])))
def test_any_octets_are_read_or_refused(octets: bytes) -> None:
    with suppress(DecodeError):
        handed.decode_head(octets)
    with suppress(DecodeError, StoreUnavailable, Refused):
        handed.decode_reply(octets)
