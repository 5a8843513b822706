"""The note of a settle entry keeps everything that an event says of a verdict."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.core.model import (
    Action,
    Amended,
    Batch,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Expired,
    Reported,
    Verdict,
)
from mqcd.core.queueing.spid import format_spid
from mqcd.queue.format import verdict
from mqcd.queue.format.record import unescape
from tests.unit.queue.support import texts, tried


@given(tried)
def test_an_attempt_and_its_reply_come_back(given_verdict: Delivered | Deferred | Bounced | Expired) -> None:
    note = verdict.split(verdict.encode(given_verdict))
    attempt, reply = given_verdict.attempt, given_verdict.reply
    route = [unescape(field) for field in note.route.split("|")]
    assert route == [getattr(attempt, name) for name in verdict.ROUTE]
    assert (note.connect_ms, note.attempt_ms) == (str(attempt.connect_ms), str(attempt.attempt_ms))
    assert (note.code, unescape(note.status), unescape(note.reply)) == (
        str(reply.code),
        reply.status,
        reply.text,
    )
    if isinstance(given_verdict, Deferred):
        assert note.extra == f"{given_verdict.due}{'?' if given_verdict.possibly_delivered else ''}"
    else:
        assert note.extra == ""


@given(tried)
def test_the_shared_part_may_be_given(given_verdict: Delivered | Deferred | Bounced | Expired) -> None:
    shared = verdict.attempt_part(given_verdict.attempt)
    assert verdict.encode(given_verdict, shared) == verdict.encode(given_verdict)


@given(texts)
def test_the_end_of_a_bounce_comes_back(reason: str) -> None:
    assert unescape(verdict.split(verdict.encode(Discarded(reason=reason))).extra) == reason
    assert verdict.split(verdict.encode(Reported(report_spid=77))).extra == format_spid(77)


def test_every_verdict_has_its_mark() -> None:
    batches = [Amended(batch=Batch(id="b", action=action, at=0, by="uid:0")) for action in Action]
    others = [kind for kind in Verdict.__args__ if kind is not Amended]
    marks = [verdict.MARKS[kind] for kind in others] + [verdict.mark_of(each) for each in batches]
    # A bounce by an operator is a removal, a retry another due time; each other has a mark of its own.
    assert len(set(marks)) == len(marks) - 2


@given(
    st.one_of(st.binary(max_size=80), st.lists(st.sampled_from([b"", b"1", b"x", b"\xff"])).map(b"|".join))
)
def test_arbitrary_octets_raise_only_decode_errors(data: bytes) -> None:
    with suppress(DecodeError):
        verdict.split(data)


def test_fields_of_a_later_version_are_passed_over() -> None:
    note = verdict.encode(Discarded(reason="why"))
    assert verdict.split(note + b"|x%7C|\xff") == verdict.split(note)


def test_a_note_with_a_field_too_few_is_refused() -> None:
    note = verdict.encode(Discarded(reason="why"))
    for wrong in (note[1:], b"", b"\xff" + note):
        with pytest.raises(DecodeError, match="not a verdict's note"):
            verdict.split(wrong)
