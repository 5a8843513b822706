"""Lines of the event log say what happened, octet for octet as an encoder of JSON would write it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.events import ATTEMPT_ENDS, Verb, format_time, site_of
from mqcd.core.model import Attempted, Bounced, Deferred, Delivered, Discarded, Expired, Recipient, Reported
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.classes import class_of
from mqcd.eventlog.files import Source
from mqcd.eventlog.pseudonyms import Pseudonyms
from mqcd.queue.events.lines import EXTRA, EventText
from mqcd.queue.format import record, verdict
from mqcd.queue.format.frame import (
    ALIVE,
    IN_SPOOL,
    BegunEntry,
    Entry,
    Header,
    Kind,
    Mark,
    pack_begun,
    pack_entry,
    pack_submission,
)
from mqcd.queue.format.transitions import VERB_OF
from tests.fakes.clock import START_MS
from tests.unit.queue.support import recipient, recipients, texts, tried

SOURCE = Source('a "node"', 3)
SEQUENCE = 700
AT = START_MS + 7
times = st.integers(0, 1 << 42)

Event = dict[str, Any]


Frame = tuple[Header, memoryview]


def frame(kind: Kind, body: bytes, count: int, at: int = AT) -> Frame:
    return Header(kind, len(body), count, 0, SEQUENCE, 0, at), memoryview(body)


def accept(*lines: bytes) -> Frame:
    return frame(Kind.ACCEPT, b"".join(pack_submission(b"".join(lines), None, 10)), len(lines))


def settle(*entries: Entry, at: int = AT) -> Frame:
    return frame(Kind.SETTLE, b"".join(map(pack_entry, entries)), len(entries), at)


def told(given_frame: Frame) -> list[str]:
    return EventText(SOURCE).lines(*given_frame)


def written(*events: Event) -> list[str]:
    return [json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n" for event in events]


def head(verb: Verb, sequence: int = SEQUENCE, at: int = AT) -> Event:
    return {"v": 1, "id": f'a "node"/3/{sequence}', "event": str(verb), "at": format_time(at)}


def of_record(each: Recipient) -> Event:
    envelope = each.envelope
    event = {
        "spid": format_spid(each.spid),
        "qid": each.qid,
        "sender": envelope.sender,
        "recipient": each.address,
        "domain": each.domain,
        "size": each.size,
        "origin": str(envelope.origin),
    }
    return event | given_only(envelope, "listener", "client", "user", "zone", "tls")


def given_only(value: object, *names: str) -> Event:
    return {name: getattr(value, name) for name in names if getattr(value, name)}


def where(destination: str) -> Event:
    named = {"destination": destination, "site": site_of(destination)}
    return {name: value for name, value in named.items() if value}


def of_attempt(each: Recipient, why: Delivered | Deferred | Bounced | Expired, number: int) -> Event:
    attempt, reply = why.attempt, why.reply
    event = of_record(each)
    event.pop("zone", None)
    event.pop("tls", None)
    event |= {"queued_ms": max(0, AT - each.envelope.received), "attempt": number}
    event |= where(attempt.destination)
    event |= given_only(attempt, "zone", "phase", "remote_host", "remote_addr", "source_addr", "tls")
    event |= given_only(reply, "code", "status") | {"class": str(class_of(reply.code, reply.status))}
    if reply.text:
        event["reply"] = reply.text
    event |= {"connect_ms": attempt.connect_ms, "attempt_ms": attempt.attempt_ms}
    if isinstance(why, Deferred):
        event["due"] = format_time(why.due)
        if why.possibly_delivered:
            event["possibly_delivered"] = True
    return event


@given(st.lists(recipients, min_size=1, max_size=3))
def test_an_acceptance(some: list[Recipient]) -> None:
    expected = [
        {**head(Verb.ACCEPTED, SEQUENCE + index), **of_record(each), "recipients": len(some)}
        for index, each in enumerate(some)
    ]
    assert told(accept(*map(record.encode, some))) == written(*expected)


def test_verdicts_marks_and_verbs_agree_on_what_ends_an_attempt() -> None:
    marks = {verdict.MARKS[kind] for kind in get_args(Attempted)}
    assert marks == {mark for mark, verb in VERB_OF.items() if verb in ATTEMPT_ENDS} == set(EXTRA)


@given(recipients, tried, st.booleans())
def test_a_verdict(each: Recipient, why: Delivered | Deferred | Bounced | Expired, alive: bool) -> None:
    mark = verdict.mark_of(why)
    entry = Entry(mark, ALIVE * alive, 4, 5, IN_SPOOL, record.encode(each), verdict.encode(why))
    # What lives on has the attempt counted in its new record already.
    number = each.attempts if alive else each.attempts + 1
    expected = {**head(VERB_OF[mark]), **of_attempt(each, why, number)}
    assert told(settle(entry)) == written(expected)


@given(recipients, texts, times)
def test_the_ends_of_bounces(each: Recipient, reason: str, at: int) -> None:
    line = record.encode(each)
    queued = {"queued_ms": max(0, at - each.envelope.received)}
    reported = Entry(Mark.REPORTED, 0, 4, 5, IN_SPOOL, line, verdict.encode(Reported(report_spid=77)))
    discarded = Entry(Mark.DISCARDED, 0, 4, 5, IN_SPOOL, line, verdict.encode(Discarded(reason=reason)))
    assert told(settle(reported, discarded, at=at)) == written(
        {**head(Verb.REPORTED, at=at), **of_record(each), **queued, "report": format_spid(77)},
        {**head(Verb.DISCARDED, SEQUENCE + 1, at), **of_record(each), **queued, "reason": reason},
    )


@given(recipients, times)
def test_an_outcome_that_a_crash_hid(each: Recipient, at: int) -> None:
    entry = Entry(Mark.UNKNOWN, ALIVE, 4, 5, IN_SPOOL, record.encode(each))
    queued = max(0, at - each.envelope.received)
    state = {"attempt": each.attempts, "due": format_time(each.due)}
    expected = {**head(Verb.OUTCOME_UNKNOWN, at=at), **of_record(each), "queued_ms": queued, **state}
    assert told(frame(Kind.UNKNOWN, pack_entry(entry), 1, at)) == written(expected)


@given(st.lists(st.builds(BegunEntry, *[st.integers(0, 9)] * 2, times, *[st.integers(0, 65535)] * 2)), texts)
def test_attempts_that_begin(begun: list[BegunEntry], destination: str) -> None:
    expected = [
        {
            **head(Verb.ATTEMPTED, SEQUENCE + index),
            "spid": format_spid(entry.spid),
            "qid": entry.qid,
            "attempt": entry.attempt,
            **where(destination),
        }
        for index, entry in enumerate(begun)
    ]
    assert told(frame(Kind.BEGUN, pack_begun(destination, begun), len(begun))) == written(*expected)


@given(texts, texts)
def test_an_attempt_that_begins_with_the_acceptance(destination: str, session: str) -> None:
    lines = [record.encode(recipient(qid=qid)) for qid in (1, 2)]
    memo = record.join(session, "", destination).encode()
    parts = pack_submission(b"".join(lines), b"content", 0, memo, attempted=True)
    events = [json.loads(line) for line in told(frame(Kind.ACCEPT, b"".join(parts), 4))]
    assert [event["event"] for event in events] == ["accepted"] * 2 + ["attempted"] * 2
    assert [event["qid"] for event in events] == [1, 2, 1, 2]
    begun = [BegunEntry(0, 0, recipient().spid, qid, 1) for qid in (1, 2)]
    alone = told(frame(Kind.BEGUN, pack_begun(destination, begun), 2))
    for event, line in zip(events[2:], alone, strict=True):
        assert {**event, "id": ""} == {**json.loads(line), "id": ""}
    assert [event["id"] for event in events] == [head(Verb.ACCEPTED, SEQUENCE + n)["id"] for n in range(4)]


@given(recipients, tried)
def test_with_a_key_nobody_is_named(each: Recipient, why: Delivered | Deferred | Bounced | Expired) -> None:
    sender, address = each.envelope.sender, each.address
    said = f"<{address}> unknown, sorry <{sender}>"
    echo = replace(why, reply=replace(why.reply, text=said))
    entry = Entry(verdict.mark_of(why), 0, 4, 5, IN_SPOOL, record.encode(each), verdict.encode(echo))
    text = EventText(Source("node", 3, b"0123456789abcdef"))
    names = Pseudonyms(b"0123456789abcdef")
    for line in text.lines(*accept(record.encode(each))) + text.lines(*settle(entry)):
        event = json.loads(line)
        assert (event["sender"], event["recipient"]) == (names.address(sender), names.address(address))
        assert event.get("user", "") == names.address(each.envelope.user)
        assert event["domain"] == each.domain
        if event["event"] != Verb.ACCEPTED:
            assert event["reply"] == names.text(said, sender, address)


def test_moves_are_not_told_but_take_their_sequence() -> None:
    line = record.encode(recipient())
    moved = [Entry(mark, ALIVE, 4, 5, IN_SPOOL, line) for mark in (Mark.CARRIED, Mark.PARKED, Mark.TAKEN)]
    unknown = Entry(Mark.UNKNOWN, ALIVE, 4, 5, IN_SPOOL, line)
    [event] = told(settle(*moved, unknown))
    assert json.loads(event)["id"] == f'a "node"/3/{SEQUENCE + 3}'


def test_what_was_reported_is_counted() -> None:
    text = EventText(SOURCE)
    line = record.encode(recipient())
    text.lines(*accept(line, line))
    text.lines(*frame(Kind.BEGUN, pack_begun("d", [BegunEntry(1, 2, 3, 4, 1)]), 1))
    text.lines(*settle(Entry(Mark.UNKNOWN, ALIVE, 4, 5, IN_SPOOL, line)))
    assert text.totals == Counter({Verb.ACCEPTED: 2, Verb.ATTEMPTED: 1, Verb.OUTCOME_UNKNOWN: 1})


LINE = record.encode(recipient())


@pytest.mark.parametrize(
    "wrong",
    [
        LINE.replace(b"|", b"", 1),
        LINE.replace(b"|s|", b"|x|"),
        LINE.replace(f"|{START_MS - 5000}|".encode(), b"|soon|"),
        b"\xff" + LINE,
    ],
)
def test_a_record_that_cannot_be_read_ends_its_frame(wrong: bytes) -> None:
    assert wrong != LINE
    assert len(told(accept(LINE, wrong, LINE))) == 1


@pytest.mark.parametrize(
    "wrong",
    [b"", b"\xff", b"|" * 10, b"|" * 12, b"|||||||0|0|450||soon|", b"|||||||0|0|many||9|"],
)
def test_a_note_that_cannot_be_read_ends_its_frame(wrong: bytes) -> None:
    good = Entry(Mark.UNKNOWN, ALIVE, 4, 5, IN_SPOOL, LINE)
    bad = Entry(Mark.DEFERRED, ALIVE, 4, 5, IN_SPOOL, LINE, wrong)
    assert len(told(settle(good, bad, good))) == 1


def acceptance(source: Source, *memo: str) -> Event:
    """The event of a message of which its memo tells this."""
    lines = record.encode(recipient())
    parts = pack_submission(lines, b"content", 0, record.join(*memo).encode())
    [line] = EventText(source).lines(*frame(Kind.ACCEPT, b"".join(parts), 1))
    event: Event = json.loads(line)
    return event


def test_an_acceptance_tells_session_and_message_id() -> None:
    event = acceptance(SOURCE, "smtp-1", 'a|"%\\ü@b')
    assert (event["session"], event["message_id"]) == ("smtp-1", 'a|"%\\ü@b')


def test_what_is_not_known_of_a_message_is_not_told() -> None:
    assert "session" not in acceptance(SOURCE, "", "<a@b>")
    assert "message_id" not in acceptance(SOURCE, "smtp-1", "")


def test_a_message_id_names_nobody() -> None:
    event = acceptance(replace(SOURCE, key=b"0123456789abcdef"), "smtp-1", "<ann@here.example>")
    assert re.fullmatch("[0-9a-f]{32}", event["message_id"])
    assert event["session"] == "smtp-1"
