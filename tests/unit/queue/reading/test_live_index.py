"""The census: the same entries as a start finds, remembered in little, and none of another time."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.core.errors import DecodeError, StoreBusy
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import IN_SPOOL, Locator
from mqcd.queue.manifest import log as manifests
from mqcd.queue.reading.live_index import LiveIndex, SegmentIndex
from mqcd.queue.reading.races import evacuated_between
from mqcd.queue.wal.chain import find_chain
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.segments import Segment
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import bounced, deferred, delivered
from tests.unit.queue.support import Rig

Record = tuple[int, int, bytes, bool, Locator]


async def live(rig: Rig) -> None:
    """Several segments; in them mail of every history, its content here, elsewhere or in the spool."""
    post, now = rig.post, rig.clock.now()
    for n in range(6):
        await post.send(f"a{n}@example.org", f"b{n}@example.org", f"c{n}@example.org")
    for n, each in enumerate(await post.claim_all()):
        verdicts = (delivered(), bounced(), deferred(now + n * MINUTE))
        await post.settle(verdicts[n % 3], each)
    await rig.evacuate()
    rig.clock.advance(HOUR)
    taken = await post.claim_all()
    await rig.store.begin(taken[:2], "mx")
    await post.send("large@example.org", content=b"x" * (20 << 10))
    await post.send("small@example.org", content=b"y" * 100)
    await rig.store.park(taken[2:3], rig.clock.now() + HOUR)
    await rig.seal()
    await post.settle(deferred(rig.clock.now() + HOUR), taken[0])
    [small] = [each for each in await post.claim_all() if each.address.startswith("small")]
    await post.settle(bounced(), small)
    await post.send("last@example.org", "two@example.org")


def by_replay(rig: Rig) -> tuple[list[Record], object]:
    replay, segments = LiveEntries(), {}
    for segment in (found := chain(rig)):
        replay.read(Disk(), segment, last=segment is found[-1])
        segments[segment.number] = segment
    located = [
        (each.segment.number, each.ordinal, each.raw, each.begun, each.content)
        for each in replay.entries(segments)
    ]
    return sorted(located), replay.takes


def by_census(rig: Rig) -> tuple[list[Record], object]:
    census = LiveIndex()
    for segment in (found := chain(rig)):
        census.read(Disk(), segment, last=segment is found[-1])
    located = [
        (number, ordinal, line, begun, each.content(ordinal))
        for number, each in census.located.items()
        for part in each.lines(Disk())
        for ordinal, line, begun in part
    ]
    assert [len(each) for each in census.located.values()] == [
        sum(record[0] == number for record in located) for number in census.located
    ]
    return sorted(located), census.takes


def chain(rig: Rig) -> list[Segment]:
    state = manifests.read(Disk(), rig.queue / "MANIFEST")
    assert state is not None
    return find_chain(Disk(), rig.queue / "journal", state)


async def test_it_finds_the_entries_that_a_start_finds(rig: Rig) -> None:
    await live(rig)
    located, takes = by_census(rig)
    assert (located, takes) == by_replay(rig)
    assert {begun for *_, begun, _ in located} == {True, False}
    assert len({content.segment for *_, content in located}) >= 3
    assert takes


async def test_a_slot_that_was_used_anew_is_not_read(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    [segment] = chain(rig)
    census = LiveIndex()
    census.read(Disk(), segment, last=True)
    [located] = census.located.values()
    # The same frames in a later segment: each line stands where one stood, and checks.
    block = segment_header.pack(
        segment_header.SegmentHeader(segment.epoch, segment.number + 8, 1, segment.number, 4096, 0, 0)
    )
    with segment.path.open("r+b") as file:
        file.write(block)
    with pytest.raises(StoreBusy, match="try again"):
        list(located.lines(Disk()))
    segment.path.unlink()
    with pytest.raises(StoreBusy, match="try again"):
        list(located.lines(Disk()))


def located() -> SegmentIndex:
    return SegmentIndex(Segment(segment_header.SegmentHeader(1, 7, 1, 0, 0, 0, 0), Path("journal/7.wal")))


def test_contents_are_shared_by_those_who_follow_one_another() -> None:
    made = located()
    first, second = Locator(7, 5000, 10), Locator(6, 9000, 20)
    for ordinal, content in [(0, first), (1, first), (5, second), (6, IN_SPOOL), (7, second)]:
        made.place(ordinal, 100 + ordinal, b"", begun=False, content=content)
    assert [made.content(each) for each in (0, 1, 5, 6, 7)] == [first, first, second, IN_SPOOL, second]
    assert len(made) == 5
    made.leave(1)
    made.leave(1)
    made.leave(3)
    made.leave(99)
    assert len(made) == 4


def test_an_ordinal_never_comes_again() -> None:
    made = located()
    made.place(4, 100, b"", begun=False, content=IN_SPOOL)
    with pytest.raises(DecodeError, match="ordinal 4 cannot be here in segment 7"):
        made.place(4, 200, b"", begun=False, content=IN_SPOOL)


def test_an_ordinal_that_cannot_be_takes_no_memory() -> None:
    with pytest.raises(DecodeError, match="ordinal 4294967295 cannot be here"):
        located().place((1 << 32) - 1, 5000, b"", begun=False, content=IN_SPOOL)


async def test_of_many_entries_little_is_remembered(rig: Rig) -> None:
    names = [f"r{n}@example.org" for n in range(400)]
    await rig.post.send(*names)
    snapshot = rig.snapshot()
    [census] = snapshot._pinned.journal.located.values()
    held = census._starts.buffer_info()[1] * census._starts.itemsize + len(census._begun)
    assert held == 5 * len(names)
    assert len(census._since) == 1
    assert len(list(snapshot.items(Selection()))) == len(names)
    snapshot.close()


async def test_a_known_empty_load_starts_nothing_anew(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of its cluster were put aside, so it ended with the sequence that the edit tells."""
    await rig.post.send("a@example.org")
    await rig.post.settle(deferred(rig.clock.now() + MINUTE), *await rig.post.claim_all())
    await rig.evacuate()
    [name] = rig.clusters()
    harmed = bytearray((rig.queue / name).read_bytes())
    harmed[-30] ^= 1
    (rig.queue / name).write_bytes(harmed)
    await rig.post.send("b@example.org")
    await rig.post.settle(deferred(rig.clock.now() + HOUR), *await rig.post.claim_all())
    first = await rig.seal()
    # The checkpointer would evacuate it by itself as well, for its age.
    monkeypatch.setattr(rig.store._live.checkpointer, "_to_evacuate", lambda: None)
    rig.clock.advance(MINUTE)
    assert await rig.post.claim_all() == []
    await rig.enrolled()
    await rig.store._live.checkpointer.evacuate(first)
    state = rig.shard.manifest.state
    assert name not in state.clusters
    snapshot = rig.snapshot()
    try:
        assert name in snapshot._pinned.journal.takes
        assert evacuated_between(state, snapshot._pinned.journal, lambda: pytest.fail("read again")) is None
    finally:
        snapshot.close()
