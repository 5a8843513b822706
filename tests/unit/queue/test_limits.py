"""Frames that do not fit: refused, or cut into several; never a new segment without end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqcd.core.model import Origin, Reported, Settlement
from mqcd.core.reply import Refused
from mqcd.queue.frame import Kind
from tests.contract.mail import bounced, chunks, delivered
from tests.unit.queue.support import SEGMENT_SIZE, Rig, tally


async def test_a_list_of_recipients_that_does_not_fit_is_refused(rig: Rig) -> None:
    addresses = [f"{'x' * 60}{n}@example.org" for n in range(600)]
    with pytest.raises(Refused, match=r"452 4\.5\.3"):
        await rig.post.send(*addresses)
    assert rig.listed() == []


async def test_a_report_that_does_not_fit_is_refused_and_its_bounce_stays(rig: Rig) -> None:
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
