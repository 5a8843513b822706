"""Frames that do not fit: refused, or cut into several; never a new segment without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.events import Verb
from mqcd.core.model import Bounced, Origin, Recipient, Reported, Settlement
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.queue.format.frame import Kind
from tests.contract.mail import bounced, chunks, delivered
from tests.unit.queue.support import SEGMENT_SIZE, Rig, tally


async def test_recipients_that_never_fit_are_refused_for_good(rig: Rig) -> None:
    addresses = [f"{'x' * 60}{n}@example.org" for n in range(600)]
    with pytest.raises(Refused, match=r"554 5\.5\.3"):
        await rig.post.send(*addresses)
    assert rig.listed() == []


async def test_content_goes_to_the_spool_where_the_records_take_its_room(small: Rig) -> None:
    addresses = [f"{'x' * 40}{n}@example.org" for n in range(60)]
    await small.post.send(*addresses, content=b"x" * 8000)
    coming = small.post.submission(*addresses)
    await small.store.enqueue(replace(coming, content=chunks(b"x" * 8000, 4000)))
    assert len(small.listed()) == 120
    assert len(list(small.shard.spool_root.rglob("*.msg"))) == 2


@pytest.mark.parametrize("octets", [1, 2000, 4000, 8000])
@pytest.mark.parametrize("many", [1, 20, 28])
async def test_records_of_any_length_leave_content_its_place(small: Rig, many: int, octets: int) -> None:
    sender = f"{'ü%' * 30}@{'s' * 60}.example"
    coming = small.post.submission(*map(_address, range(many)), sender=sender, content=b"x" * octets)
    coming = replace(coming, recipient_dsn=["NOTIFY=NEVER ORCPT=rfc822;" + "a" * 30] * many)
    envelope = replace(coming.envelope, message_id="%" * 300, session="s1")
    await small.store.enqueue(replace(coming, envelope=envelope))
    assert len(small.listed()) == many


async def test_a_refused_report_leaves_its_bounce(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.settle(bounced(), *await rig.post.claim_all())
    [bounce] = await rig.post.claim_bounces()
    addresses = [f"{'x' * 60}{n}@example.org" for n in range(600)]
    large = rig.post.submission(*addresses, sender="", content=bytes(SEGMENT_SIZE), origin=Origin.REPORT)
    ended = Settlement(recipient=bounce, verdict=Reported(report_spid=large.envelope.spid))
    with pytest.raises(Refused, match="Too large"):
        await rig.store.settle([ended], [large])
    assert len(rig.shard.ring.segments) == 1
    assert not list(rig.shard.spool_root.rglob("*.msg"))
    small = rig.post.submission("s@example.com", sender="", content=b"x", origin=Origin.REPORT)
    ended = Settlement(recipient=bounce, verdict=Reported(report_spid=small.envelope.spid))
    await rig.store.settle([ended], [small])
    assert [each.spid for each in rig.listed()] == [small.envelope.spid]


async def test_any_frame_larger_than_a_segment_is_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match=f"{SEGMENT_SIZE} octets fits in no segment"):
        await rig.shard.journal.append(Kind.PARK, [bytes(SEGMENT_SIZE)], 1, 0, lambda *_: None)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Rig]:
    """With the smallest segments that the configuration allows."""
    journal = JournalSettings(segmentsize=64 << 10, segments=32, inline_max=16 << 10)
    made = await Rig(tmp_path / "s", journal=journal, memorybudget=64 << 20).open()
    yield made
    await made.close()


def _address(number: int) -> str:
    return f"{'u' * 60}{number}@{'d' * 60}.{'e' * 60}.example.org"


async def _claimed(small: Rig, many: int) -> list[Recipient]:
    found: list[Recipient] = []
    for number in range(many):
        await small.post.send(_address(number))
        found += await small.store.claim(5, small.clock.now())
    assert len(found) == many
    return found


async def test_attempts_cut_off_by_a_kill_take_several_frames(small: Rig) -> None:
    found = await _claimed(small, 300)
    await small.store.begin(found, "example.org")
    again = await small.killed()
    assert tally(again.listed()) == tally(found)
    unknown = again.observer.of(Verb.OUTCOME_UNKNOWN)
    assert tally([each.recipient for each in unknown if each.recipient is not None]) == tally(found)
    assert len(await again.post.claim_all()) == 300


async def test_one_begin_may_exceed_a_segments_room(small: Rig) -> None:
    found = await _claimed(small, 40)
    many = found * 100
    await small.store.begin(many, "example.org")
    assert len(small.observer.of(Verb.ATTEMPTED)) == len(many)
    again = await small.killed()
    assert len(again.observer.of(Verb.OUTCOME_UNKNOWN)) == 40


async def test_a_report_ends_more_bounces_than_a_segment_has_room_for(small: Rig) -> None:
    refusal = Bounced(reply=Reply(code=550, text="no such user " * 70), attempt=bounced().attempt)
    for each in await _claimed(small, 100):
        await small.post.settle(refusal, each)
    bounces = await small.post.claim_bounces()
    report = small.post.submission("s@example.com", sender="", content=b"x" * 8000, origin=Origin.REPORT)
    verdict = Reported(report_spid=report.envelope.spid)
    await small.store.settle([Settlement(recipient=each, verdict=verdict) for each in bounces], [report])
    for rig in (small, await small.killed()):
        assert [each.spid for each in rig.listed()] == [report.envelope.spid]
    assert len(small.observer.of(Verb.REPORTED)) == 100


async def test_a_segment_full_of_claimed_recipients_is_carried(rig: Rig) -> None:
    for part in range(4):
        await rig.post.send(*(f"{'x' * 200}{n}@example.org" for n in range(part * 100, part * 100 + 170)))
    claimed = await rig.post.claim_all()
    assert len(claimed) == 680
    first = min(rig.shard.ring.segments)
    await asyncio.wait_for(rig.evacuate(), 60)
    assert min(rig.shard.ring.segments) > first
    assert tally(rig.listed()) == tally(claimed)
    again = await rig.killed()
    assert tally(again.listed()) == tally(claimed)
    await rig.post.settle(delivered(), *claimed[:300])
    assert len(rig.listed()) == 380


async def test_a_large_message_never_lies_in_the_journal(rig: Rig, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4000
    [recipient] = await rig.store.enqueue(rig.post.submission("a@example.org", content=chunks(content)))
    [segment] = rig.shard.ring
    assert segment.end < 8192
    assert await rig.post.read(recipient) == content
