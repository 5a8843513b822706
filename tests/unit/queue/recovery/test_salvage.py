"""Frames that are lost to damage: no recipient is tried again without being reported as outcome-unknown."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Area, Recipient
from mqcd.disk.file_window import Window
from mqcd.queue.format.frame import HEADER_SIZE, Kind
from mqcd.queue.format.segment_header import HEADER_SIZE as SEGMENT_HEADER
from mqcd.queue.wal.scan import Frame, Walk
from mqcd.queue.wal.segments import Segment
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import deferred, delivered
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import Rig


def _current(rig: Rig) -> Segment:
    segment = rig.shard.ring.current
    assert segment is not None
    return segment


def _frames(rig: Rig) -> list[Frame]:
    segment = _current(rig)
    data = segment.path.read_bytes()[: segment.end]
    return list(Walk(Window.over(data), segment, bound=segment.end))


def _last(rig: Rig, kind: Kind) -> Frame:
    """The frame that was written just now."""
    frame = _frames(rig)[-1]
    assert frame.header.kind is kind
    return frame


async def _killed_without(rig: Rig, *lost: Frame, whole: bool = False) -> Rig:
    """What a kill leaves, with an octet turned over in each of these frames; or all of them are zeros, with
    all that lies between them."""
    # A later frame tells that they were durable.
    await rig.post.send("later@example.org")
    root = rig.root.with_name(f"{rig.root.name}k")
    copy_as_killed(rig.root, root)
    path = root / "queue" / "journal" / _current(rig).path.name
    data = bytearray(path.read_bytes())
    for frame in lost:
        data[frame.body_at + 3] ^= 0x40
    if whole:
        start, end = lost[0].body_at - HEADER_SIZE, lost[-1].body_at + len(lost[-1].body)
        data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return Rig(root, rig.clock, **rig.changes)


async def _without(rig: Rig, *lost: Frame, whole: bool = False) -> Rig:
    """The same, and a start."""
    again = await _killed_without(rig, *lost, whole=whole)
    rig._later.append(again)
    await again.open()
    assert again.shard.figures.quarantined == 1
    return again


def _names(recipients: list[Recipient]) -> list[str]:
    return sorted(each.address.partition("@")[0] for each in recipients)


def _unknown(rig: Rig) -> list[str]:
    heard = rig.observer.of(Verb.OUTCOME_UNKNOWN)
    return _names([each.recipient for each in heard if each.recipient is not None])


async def test_the_last_word_on_a_recipient_counts(rig: Rig) -> None:
    """A frame that moved it is lost, and a later one moved it from there."""
    await rig.post.send("a@example.org")
    await rig.post.settle(deferred(rig.clock.now() + 5), *await rig.post.claim_all())
    lost = _last(rig, Kind.SETTLE)
    rig.clock.advance(10)
    await rig.post.settle(deferred(rig.clock.now() + HOUR, "the last word"), *await rig.post.claim_all())
    again = await _without(rig, lost)
    assert _unknown(again) == []
    assert _names(await again.post.claim_all()) == ["later"]
    rig.clock.advance(2 * HOUR)
    [once] = await again.post.claim_all()
    assert (once.reply, once.attempts) == ("the last word", 2)
    assert again.store.stats()[Area.DEFERRED].recipients == 1


async def test_an_end_counts_though_the_frame_before_it_is_lost(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.settle(deferred(rig.clock.now() + 5), *await rig.post.claim_all())
    lost = _last(rig, Kind.SETTLE)
    rig.clock.advance(10)
    await rig.post.settle(delivered(), *await rig.post.claim_all())
    again = await _without(rig, lost)
    assert _names(await again.post.claim_all()) == ["later"]
    assert _unknown(again) == []


async def test_an_attempt_from_a_home_that_is_lost_is_reported(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.settle(deferred(rig.clock.now() + 5), *await rig.post.claim_all())
    lost = _last(rig, Kind.SETTLE)
    rig.clock.advance(10)
    await rig.store.begin(await rig.post.claim_all(), "site.example")
    again = await _without(rig, lost)
    assert _unknown(again) == ["a"]


async def test_a_lost_verdict_makes_earlier_due_mail_unknown(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.post.send("b@example.org")
    first, _ = await rig.post.claim_all()
    await rig.store.begin([first], "site.example")
    await rig.post.settle(delivered(), first)
    again = await _without(rig, _last(rig, Kind.SETTLE))
    assert _unknown(again) == ["a", "b"]
    assert _names(await again.post.claim_all()) == ["a", "b", "later"]


@pytest.mark.parametrize("whole", [False, True])
async def test_whoever_may_have_been_tried_in_what_is_lost_is_reported(rig: Rig, whole: bool) -> None:
    """Attempt and verdict are lost; somebody who was not due then, and who came later, are not meant."""
    await rig.post.defer_new("notdue@example.org", rig.clock.now() + HOUR)
    await rig.post.send("a@example.org")
    await rig.post.send("b@example.org")
    first, _ = await rig.post.claim_all()
    await rig.store.begin([first], "site.example")
    lost = [_last(rig, Kind.BEGUN)]
    await rig.post.settle(delivered(), first)
    lost.append(_last(rig, Kind.SETTLE))
    again = await _without(rig, *lost, whole=whole)
    assert _unknown(again) == ["a", "b"]
    assert _names(await again.post.claim_all()) == ["a", "b", "later"]


async def test_records_of_a_lost_load_are_not_loaded_again(rig: Rig) -> None:
    """One was delivered then, one deferred, one begun; of one nothing is known; two were not taken."""
    for name in ("done", "waits", "begun", "quiet", "rests", "last"):
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    done, quiet, waits, begun = sorted(await rig.store.claim(4, rig.clock.now()), key=_by_fate)
    lost = _last(rig, Kind.TAKE)
    await rig.post.settle(delivered(), done)
    await rig.post.settle(deferred(rig.clock.now() + HOUR), waits)
    await rig.store.begin([begun], "site.example")
    again = await _without(rig, lost)
    # What is behind the last one of which a later frame tells may never have been taken.
    assert _unknown(again) == ["begun"]
    assert _names(await again.post.claim_all()) == ["begun", "last", "later", "quiet", "rests"]
    rig.clock.advance(2 * HOUR)
    assert _names(await again.post.claim_all()) == ["waits"]
    assert sum(area.recipients for area in again.store.stats().values()) == 6
    assert quiet.address.startswith("quiet")


def _by_fate(recipient: Recipient) -> int:
    return ["done", "quiet", "waits", "begun"].index(recipient.address.partition("@")[0])


async def test_loads_of_a_lost_frame_before_the_last_are_reported(rig: Rig) -> None:
    for name in ("quiet", "done", "rests"):
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    _, done = await rig.store.claim(2, rig.clock.now())
    lost = _last(rig, Kind.TAKE)
    await rig.post.settle(delivered(), done)
    again = await _without(rig, lost)
    assert _unknown(again) == ["quiet"]
    assert _names(await again.post.claim_all()) == ["later", "quiet", "rests"]
    # It goes by the journal alone, so the next start finds the same, once.
    last = await again.killed()
    assert _unknown(last) == []
    assert _names(await last.post.claim_all()) == ["later", "quiet", "rests"]


@pytest.mark.parametrize(("free", "lost"), [(0, 2), (1, 600)])
async def test_a_start_takes_again_though_the_ring_is_full(rig: Rig, free: int, lost: int) -> None:
    """Also where a segment begins for new work, and has no room for all."""
    for _ in range(lost // 2 + 1):
        await rig.post.send("a@example.org", "b@example.org")
    await rig.evacuate()
    rig.disk.fail("open", "*/events/*", times=None)
    claimed: list[Recipient] = []
    while len(claimed) < lost:
        claimed += await rig.store.claim(lost - len(claimed), rig.clock.now())
    takes = _current(rig)
    end = takes.end
    await rig.post.settle(delivered(), claimed[-1])
    while rig.shard.ring.free_slots > free:
        await rig.seal()
        await rig.shard.journal.append(Kind.NOTE, [], 0, rig.clock.now(), lambda *_: None)
    again = Rig(rig.root.with_name("full"), rig.clock, memorybudget=0)
    copy_as_killed(rig.root, again.root)
    with (again.queue / "journal" / takes.path.name).open("r+b") as file:
        file.seek(SEGMENT_HEADER)
        file.write(bytes(end - SEGMENT_HEADER))
    rig._later.append(await again.open())
    assert again.shard.ring.free_slots == 0
    assert len(_unknown(again)) == lost - 1
    while again.shard.ring.full:
        await asyncio.sleep(0)
    assert len(await again.post.claim_all()) == lost + 1


async def test_a_reader_goes_by_the_furthest_cursor(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two loads the second is lost, but the MANIFEST knows the cursor behind it."""
    now = rig.clock.now()
    for name in ("a", "b", "c"):
        await rig.post.defer_new(f"{name}@example.org", now + MINUTE)
    await rig.evacuate()
    monkeypatch.setattr(rig.store._live.checkpointer, "_to_evacuate", lambda: None)
    await rig.post.defer_new("older@example.org", now + HOUR)
    older = await rig.seal()
    rig.clock.advance(MINUTE)
    await rig.store.claim(1, rig.clock.now())
    [loaded] = await rig.store.claim(1, rig.clock.now())
    lost = _last(rig, Kind.TAKE)
    await rig.store._live.checkpointer.evacuate(older)
    await rig.post.settle(deferred(now + HOUR), loaded)
    harmed = await _killed_without(rig, lost)
    assert _names(harmed.listed()) == ["a", "b", "c", "later", "older"]
    with closing(harmed.snapshot()) as snapshot:
        assert snapshot.stats() == dict(rig.store.stats())
