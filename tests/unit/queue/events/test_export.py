"""The event log has each transition exactly once, whatever happened between."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.events import TRANSITIONS, Verb, format_time
from mqcd.core.model import (
    Action,
    Attempt,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Envelope,
    Expired,
    Origin,
    Phase,
    Reported,
    Settlement,
    Submission,
)
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import events_path
from mqcd.queue.events.export import export
from mqcd.queue.format.frame import IN_SPOOL, Entry, Kind, Mark, pack_entry
from tests.contract import schema
from tests.contract.harness import MINUTE
from tests.contract.mail import ATTEMPT, BODY, batch, bounced, carry_out, deferred, delivered, expired
from tests.unit.queue.support import SEGMENT_SIZE, Rig


def number(event: dict[str, object]) -> int:
    return int(str(event["id"]).rsplit("/", 1)[1])


async def life(rig: Rig) -> Rig:
    """Every transition at least once, with restarts of both kinds between."""
    post = rig.post
    for name in ("ok", "later", "bad", "old", "silent", "cut"):
        await post.send(f"{name}@example.org")
    claimed = {each.address.split("@")[0]: each for each in await post.claim_all()}
    await rig.store.begin(list(claimed.values()), "mx.example.org")
    await post.settle(delivered(), claimed["ok"])
    await post.settle(deferred(rig.clock.now() + MINUTE), claimed["later"])
    await post.settle(bounced(), claimed["bad"], claimed["silent"])
    await post.settle(expired(), claimed["old"])
    rig = await rig.killed()
    await rig.evacuate()
    rig = await rig.reopened()
    post = rig.post
    bounces = {each.address.split("@")[0]: each for each in await post.claim_bounces()}
    report = post.submission("sender@example.com", sender="", content=BODY, origin=Origin.REPORT)
    reported = Reported(report_spid=report.envelope.spid)
    ends = [Settlement(recipient=bounces[name], verdict=reported) for name in ("bad", "old")]
    await rig.store.settle(ends, [report])
    await post.settle(Discarded(reason="by setting"), bounces["silent"])
    rig.clock.advance(MINUTE)
    await rig.store.park([], 0)
    await post.settle(delivered(), *await post.claim_all())
    rig = await rig.killed()
    return await rig.reopened()


LIFE = Counter(
    {
        Verb.ACCEPTED: 7,
        Verb.ATTEMPTED: 6,
        Verb.DELIVERED: 4,
        Verb.DEFERRED: 1,
        Verb.BOUNCED: 2,
        Verb.EXPIRED: 1,
        Verb.REPORTED: 2,
        Verb.DISCARDED: 1,
        Verb.OUTCOME_UNKNOWN: 1,
    }
)


async def test_each_transition_comes_exactly_once_over_restarts(rig: Rig) -> None:
    last = await life(rig)
    events = last.events()
    assert Counter(event["event"] for event in events) == LIFE
    assert set(LIFE) <= TRANSITIONS
    seen = Counter((event["spid"], event["qid"], event["event"]) for event in events)
    assert set(seen.values()) == {1}
    assert last.listed() == []


async def test_ids_are_unique_and_ascend(rig: Rig) -> None:
    last = await life(rig)
    ids = [number(event) for event in last.events()]
    assert ids == sorted(set(ids))
    assert {str(event["id"]).rsplit("/", 1)[0] for event in last.events()} == {"node/3"}


async def test_the_manifests_totals_are_those_of_the_events(rig: Rig) -> None:
    last = await life(rig)
    assert last.shard.manifest.state.totals == LIFE


async def test_files_are_named_by_segment_and_nothing_else_is_left(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    segment = await rig.seal()
    await rig.evacuate()
    names = [path.name for path in (rig.root / "events").iterdir()]
    assert names == [f"node-3-{segment.number:010d}.jsonl.gz"]


async def test_writing_a_file_again_gives_the_same_octets(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    segment = await rig.seal()
    source = rig.options.source
    first, second = tmp_path / "one", tmp_path / "two"
    for directory in (first, second):
        directory.mkdir()
        assert export(Disk(), segment, directory, source) == ({Verb.ACCEPTED: 2, Verb.DELIVERED: 2}, 0, "")
    one = events_path(first, source, segment.number)
    assert one.read_bytes() == events_path(second, source, segment.number).read_bytes()
    before = one.stat().st_ino
    assert export(Disk(), segment, first, source).totals == {Verb.ACCEPTED: 2, Verb.DELIVERED: 2}
    assert one.stat().st_ino == before


async def test_a_segment_of_any_number_of_events_is_told_whole(rig: Rig) -> None:
    for part in range(6):
        await rig.post.send(*(f"r{part}.{number}@example.org" for number in range(400)))
    await rig.evacuate()
    told = [str(event["recipient"]) for event in rig.events()]
    assert told == [f"r{batch}.{number}@example.org" for batch in range(6) for number in range(400)]


async def test_an_export_that_failed_leaves_no_file_and_is_repeated(rig: Rig, tmp_path: Path) -> None:
    await rig.post.send("a@example.org")
    segment = await rig.seal()
    target = tmp_path / "out"
    target.mkdir()
    path = events_path(target, rig.options.source, segment.number)
    # Beside this, a thread tells the MANIFEST of the segment: each failure is for the export's own calls.
    for operation in ("open", "pread", "pwritev", "datasync", "rename"):
        rig.disk.fail(operation, str(segment.path if operation == "pread" else target / "*"))
        with pytest.raises(OSError, match="Input/output error"):
            export(rig.disk, segment, target, rig.options.source)
        assert not path.exists()
    export(rig.disk, segment, target, rig.options.source)
    assert json.loads(gzip.decompress(path.read_bytes()))["event"] == "accepted"


HEAD = {"v", "id", "event", "at", "spid", "qid"}
RECORD = {"sender", "recipient", "domain", "size", "origin"}
WHERE = {"destination", "site", "phase", "remote_host"}
ATTEMPTED = {"attempt", "connect_ms", "attempt_ms", "code", "status", "class"} | WHERE
FIELDS = {
    "accepted": HEAD | RECORD | {"recipients"},
    "attempted": HEAD | {"attempt", "destination", "site"},
    "delivered": HEAD | RECORD | ATTEMPTED | {"reply", "queued_ms"},
    "deferred": HEAD | RECORD | ATTEMPTED | {"reply", "queued_ms", "due"},
    "bounced": HEAD | RECORD | ATTEMPTED | {"reply", "queued_ms"},
    "expired": HEAD | RECORD | ATTEMPTED | {"reply", "queued_ms"},
    "reported": HEAD | RECORD | {"queued_ms", "report"},
    "discarded": HEAD | RECORD | {"queued_ms", "reason"},
    "outcome-unknown": HEAD | RECORD | {"queued_ms", "attempt", "due"},
}


async def test_events_carry_the_fields_that_apply(rig: Rig) -> None:
    last = await life(rig)
    for event in last.events():
        assert set(event) == FIELDS[event["event"]]


async def test_every_verb_and_every_field_comes_from_a_full_record(rig: Rig) -> None:
    """Else the schema promises what nobody writes."""
    store, post = rig.store, rig.post
    spid = store.reserve(several=True)
    envelope = Envelope(
        spid=spid,
        sender="sender@example.com",
        received=rig.clock.now(),
        zone="bulk",
        listener="mx",
        client="192.0.2.9",
        user="joe",
        tls="TLSv1.3",
        labels="tenant=acme",
        session="mx-1",
        message_id="<a@example.com>",
    )
    names = ("ok", "later", "bad", "old", "silent", "moved", "cut")
    addresses = [f"{name}@example.org" for name in names]
    await store.enqueue(Submission(envelope=envelope, recipients=addresses, content=BODY))
    claimed = {each.address.split("@")[0]: each for each in await post.claim_all()}
    await store.begin(list(claimed.values()), "mx.example.org+1-0123abcd")
    full = Attempt(
        destination="mx.example.org+1-0123abcd",
        zone="bulk",
        phase=Phase.DOT,
        remote_host="mx.example.org",
        remote_addr="192.0.2.25",
        source_addr="192.0.2.1",
        tls="TLSv1.3",
        connect_ms=12,
        attempt_ms=34,
    )
    verdicts: dict[str, Delivered | Deferred | Bounced | Expired] = {
        "ok": delivered(),
        "later": replace(deferred(rig.clock.now() + MINUTE), possibly_delivered=True),
        "bad": bounced(),
        "old": expired(),
        "silent": bounced(),
        "moved": bounced(),
    }
    for name, verdict in verdicts.items():
        await post.settle(replace(verdict, attempt=full), claimed[name])
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    told = {each.address.split("@")[0]: each for each in await post.claim_bounces()}
    ends = [Settlement(recipient=told["bad"], verdict=Reported(report_spid=report.envelope.spid))]
    await store.settle(ends, [report])
    await post.settle(Discarded(reason="by setting"), told["silent"])
    await post.settle(Discarded(reason="migrated", undone=Verb.BOUNCED), told["moved"])
    await act_on(rig, envelope)
    last = await (await rig.killed()).reopened()
    for verb in TRANSITIONS:
        of_verb = [event for event in last.events() if event["event"] == verb]
        assert set().union(*of_verb) == set(schema.allowed(verb)), verb


async def act_on(rig: Rig, envelope: Envelope) -> None:
    """Every action, with all that it can say."""
    spid = rig.store.reserve(several=False)
    sent = replace(envelope, spid=spid)
    await rig.store.enqueue(Submission(envelope=sent, recipients=["x@example.org"], content=BODY))
    for action in (Action.HOLD, Action.RELEASE, Action.REDIRECT, Action.RESCHEDULE):
        order = batch(action, rig.post, reason="asked for", target="y@example.org")
        assert await carry_out(rig.store, order, Selection(spid=spid)) == (1, 0), action
    last = batch(Action.BOUNCE, rig.post, id="bounce-2", reason="asked for")
    assert await carry_out(rig.store, last, Selection(spid=spid)) == (1, 0)
    undo = batch(Action.UNDO, rig.post, target=last.id, reason="asked for")
    assert await carry_out(rig.store, undo, Selection(spid=spid)) == (1, 0)


async def test_the_documents_line_of_python_reads_them(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.post.send("a@example.org", "b@example.org")
    await rig.evacuate()
    (tmp_path / "var").symlink_to(rig.root)
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"In Python:\n\n((?:    .*\n)+)", schema.PAGE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)
    assert list(names["events"]) == rig.events() != []


async def test_what_the_events_say(rig: Rig) -> None:
    [accepted] = await rig.post.send("Grüße@Bücher.example")
    at = rig.clock.now()
    rig.clock.advance(250)
    [claimed] = await rig.post.claim_all()
    await rig.store.begin([claimed], "mx.example.org")
    verdict = deferred(at + MINUTE)
    await rig.post.settle(verdict, claimed)
    await rig.evacuate()
    first, second, third = rig.events()
    assert first == {
        "v": 1,
        "id": first["id"],
        "event": "accepted",
        "at": format_time(at),
        "spid": format_spid(accepted.spid),
        "qid": 1,
        "sender": "sender@example.com",
        "recipient": "Grüße@Bücher.example",
        "domain": "xn--bcher-kva.example",
        "size": len(BODY),
        "origin": "smtp",
        "recipients": 1,
    }
    assert (second["event"], second["attempt"], second["destination"]) == ("attempted", 1, "mx.example.org")
    assert third["queued_ms"] == 250
    assert third["attempt"] == 1
    assert (third["code"], third["status"], third["reply"]) == (450, "4.2.1", "busy")
    assert (third["destination"], third["phase"]) == (ATTEMPT.destination, "dot")
    assert third["due"] == format_time(at + MINUTE)
    assert "possibly_delivered" not in third


async def test_a_reply_of_any_text_stays_on_its_line(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    text = 'a|b%0A "q" \u2028 é'
    verdict = delivered()
    odd = type(verdict)(reply=Reply(code=250, status="2.0.0", text=text), attempt=verdict.attempt)
    await rig.post.settle(odd, *await rig.post.claim_all())
    await rig.evacuate()
    assert rig.events()[-1]["reply"] == text


async def test_a_delivery_and_its_report_are_reported_once_each(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    claimed = await rig.post.claim_all()
    report = rig.post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    await rig.store.settle([Settlement(recipient=claimed[0], verdict=delivered())], [report])
    rig = await rig.killed()
    rig = await rig.reopened()
    told = [(event["event"], event["recipient"]) for event in rig.events()]
    assert told.count(("delivered", "a@example.org")) == 1
    assert told.count(("accepted", "sender@example.com")) == 1


async def test_a_frame_that_cannot_be_told_is_counted_and_named(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    # Its checksum fits: a program that writes other notes has made it.
    await rig.post.send("a@example.org")
    sequence = rig.shard.journal.sequence
    entry = Entry(Mark.DELIVERED, 0, 0, 0, IN_SPOOL, b"no record\n", b"no note")
    at = rig.clock.now()
    await rig.shard.journal.append(Kind.SETTLE, [pack_entry(entry)], 1, at, lambda *_: None)
    await rig.post.send("b@example.org")
    await rig.evacuate()
    assert [event["recipient"] for event in rig.events()] == ["a@example.org", "b@example.org"]
    assert rig.store.engine().unreadable_frames == 1
    assert f"sequence {sequence}, SETTLE" in caplog.text


async def test_a_segment_sealed_beside_an_evacuation_is_exported(tmp_path: Path) -> None:
    journal = JournalSettings(segmentsize=SEGMENT_SIZE, segments=8, evacuate_age=0)
    rig = await Rig(tmp_path / "q", journal=journal).open()
    gate = rig.disk.block("datasync", "*/MANIFEST*")
    await rig.post.send("first@example.org")
    await rig.seal()
    await asyncio.to_thread(gate.reached.wait, 30)
    await rig.post.send("second@example.org")
    last = await rig.seal()
    gate.release()
    async with asyncio.timeout(30):
        while last.number in rig.shard.ring.segments:
            await asyncio.sleep(0)
    told = [event["recipient"] for event in rig.events()]
    assert told == ["first@example.org", "second@example.org"]
    await rig.close()
