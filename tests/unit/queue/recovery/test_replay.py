"""A start takes mail in before it has read what the last run left, and hands out nothing until it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.queue.admin.findings import Kind as Trouble
from mqcd.queue.format import record
from mqcd.queue.format.frame import ALIVE, BEGUN, IN_SPOOL, Entry, Kind, Mark, pack_entry
from mqcd.queue.format.segment_header import HEADER_SIZE, file_name, pack
from mqcd.queue.manifest.state import Edit
from mqcd.queue.wal.segments import Segment
from tests.contract.mail import delivered
from tests.fakes.disk import Gate
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.admin.kit import look
from tests.unit.queue.support import Rig, tally

READING = "datasync"
"""The call with which a start begins to read what the last run left, behind the newest segment."""


def oldest(root: Path) -> str:
    """The oldest journal file of a copy whose segments have all been kept."""
    names = [path.name for path in (root / "queue" / "journal").glob("[0-9]*.wal")]
    return f"*/{min(names)}"


@asynccontextmanager
async def starting(
    rig: Rig, harm: Callable[[Path], None] = lambda _: None
) -> AsyncIterator[tuple[Rig, Gate]]:
    """What a kill leaves of `rig`, opened and held back before the journal is read; `harm` damages it."""
    root = rig.root.with_name(f"{rig.root.name}k")
    copy_as_killed(rig.root, root)
    harm(root)
    again = Rig(root, rig.clock, **rig.changes)
    gate = again.disk.block(READING, oldest(root))
    await again.store.open()
    again._open = True
    try:
        assert await asyncio.to_thread(gate.reached.wait, 30)
        yield again, gate
    finally:
        gate.release()
        await again.close()


async def _two_segments(rig: Rig) -> None:
    await rig.post.send("first@example.org")
    await rig.seal()
    await rig.post.send("second@example.org")


async def test_mail_accepted_during_replay_is_handed_out_last(rig: Rig) -> None:
    await _two_segments(rig)
    async with starting(rig) as (again, gate):
        [new] = await again.post.send("new@example.org", content=b"a new one\r\n")
        woken = asyncio.Event()
        again.store.watch(woken.set)
        assert await again.store.claim(10, again.clock.now()) == ()
        assert again.store.next_due() is None
        with pytest.raises(StoreUnavailable, match="still being read"):
            await again.store.content(new)
        gate.release()
        await again.store.recovered()
        assert woken.is_set()
        claimed = await again.post.claim_all()
        assert [each.address.split("@")[0] for each in claimed] == ["first", "second", "new"]
        assert await again.post.read(claimed[2]) == b"a new one\r\n"
        assert again.store.stats()[Area.INCOMING].recipients == 3


async def test_what_was_taken_meanwhile_survives_a_kill(rig: Rig) -> None:
    await _two_segments(rig)
    async with starting(rig) as (again, _gate):
        large = b"x" * 40_000
        await again.post.send("new@example.org", "other@example.org", content=large)
        last = await again.killed()
        claimed = await last.post.claim_all()
        assert len(tally(claimed)) == 4
        assert await last.post.read(claimed[2]) == large


@pytest.mark.parametrize("cut", [False, True], ids=["bad", "cut off"])
@pytest.mark.parametrize("mail", [False, True], ids=["no mail", "mail"])
async def test_a_start_that_is_killed_does_not_make_damage_at_the_end_forgotten(
    rig: Rig, cut: bool, mail: bool
) -> None:
    await _two_segments(rig)
    await rig.enrolled()
    segment = rig.shard.ring.current
    assert segment is not None
    end = segment.end
    await rig.store.begin([each for each in await rig.post.claim_all() if "second" in each.address], "mx")
    if not cut:
        # Else the MANIFEST knows the file's length alone.
        await rig.shard.editing.commit(Edit())

    def harm(root: Path) -> None:
        path = root / "queue" / "journal" / segment.path.name
        data = path.read_bytes()
        path.write_bytes(data[:end] if cut else data[:end] + bytes(len(data) - end))

    async with starting(rig, harm) as (again, _gate):
        if mail:
            await again.post.send("new@example.org")
        last = await again.killed()
        unknown = [each.recipient for each in last.observer.of(Verb.OUTCOME_UNKNOWN)]
        assert {each.address for each in unknown if each} == {"first@example.org", "second@example.org"}
        assert len(unknown) == 2
        found = look(last)
        assert ([each.kind for each in found.problems], found.quarantined) == ([Trouble.FRAME], 1)
        # What has been reported is not reported once more.
        assert not (await last.killed()).observer.of(Verb.OUTCOME_UNKNOWN)


async def _without_frames_of_the_newest(rig: Rig) -> tuple[Segment, Callable[[Path], None]]:
    """The newer one of two segments, and what makes all of its frames octets that do not check."""
    await _two_segments(rig)
    await rig.enrolled()
    segment = rig.shard.ring.current
    assert segment is not None
    end = segment.end

    def harm(root: Path) -> None:
        path = root / "queue" / "journal" / segment.path.name
        data = path.read_bytes()
        path.write_bytes(data[:HEADER_SIZE].ljust(end, b"?") + data[end:])

    return segment, harm


def _found_in(rig: Rig) -> tuple[list[str], list[tuple[str, int]]]:
    """Files of the journal in which fsck finds damage, and the finds in quarantine with their octets."""
    damaged = [each.path.name for each in look(rig).problems if each.kind is Trouble.FRAME]
    return damaged, [(each.name, each.stat().st_size) for each in (rig.queue / "quarantine").iterdir()]


@pytest.mark.parametrize("torn", [False, True], ids=["mail", "a header alone before"])
async def test_a_segment_without_a_frame_that_checks_outlives_a_start_that_is_killed(
    rig: Rig, torn: bool
) -> None:
    segment, harm = await _without_frames_of_the_newest(rig)
    found = [segment.path.name], [(f"segment-{segment.number}-4096+1.bad", segment.end - HEADER_SIZE)]
    async with AsyncExitStack() as stack:
        last, _ = await stack.enter_async_context(starting(rig, harm))
        if torn:
            # The first group of that start's own segment came to the disk in part.
            journal = last.shard.journal
            header = journal._sealing.begin(journal.sequence, kept=False).header
            (last.queue / "journal" / file_name(header.number)).write_bytes(pack(header))
            last, _ = await stack.enter_async_context(starting(last))
        await last.post.send("new@example.org")
        last = await last.killed()
        unknown = [each.recipient for each in last.observer.of(Verb.OUTCOME_UNKNOWN)]
        assert [each.address for each in unknown if each] == ["first@example.org"]
        assert _found_in(last) == found


async def test_a_segment_without_a_frame_that_checks_is_damage_until_it_is_evacuated(rig: Rig) -> None:
    segment, harm = await _without_frames_of_the_newest(rig)
    found = [segment.path.name], [(f"segment-{segment.number}-4096+1.bad", segment.end - HEADER_SIZE)]
    async with starting(rig, harm) as (again, gate):
        gate.release()
        await again.store.recovered()
        assert len(again.observer.of(Verb.OUTCOME_UNKNOWN)) == 1
        last = await again.killed()
        assert _found_in(last) == found
        assert not last.observer.of(Verb.OUTCOME_UNKNOWN)
        await last.evacuate()
        assert _found_in(last) == ([], found[1])


async def test_a_draft_of_this_run_is_not_swept_as_one_of_the_last(rig: Rig) -> None:
    await _two_segments(rig)
    async with starting(rig) as (again, gate):
        going_on = asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield b"x" * 40_000
            await going_on.wait()
            yield b"y"

        sending = asyncio.ensure_future(
            again.store.enqueue(again.post.submission("slow@example.org", content=chunks()))
        )
        while not again.spooled():
            await asyncio.sleep(0)
        gate.release()
        await again.store.recovered()
        await again.evacuate()
        going_on.set()
        [slow] = await sending
        assert slow.key in [each.key for each in await again.post.claim_all()]
        assert await again.post.read(slow) == b"x" * 40_000 + b"y"


async def test_an_unreadable_journal_closes_the_door(rig: Rig) -> None:
    await _two_segments(rig)
    root = rig.root.with_name("failing")
    copy_as_killed(rig.root, root)
    again = Rig(root, rig.clock)
    gate = again.disk.block(READING, oldest(root))
    again.disk.fail(READING, oldest(root), times=None)
    await again.store.open()
    await again.post.send("new@example.org")
    gate.release()
    with pytest.raises(StoreUnavailable, match="the journal cannot be read"):
        await again.store.recovered()
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await again.post.send("later@example.org")
    await again.store.close()
    mended = await Rig(root, rig.clock).open()
    try:
        assert len(await mended.post.claim_all()) == 3
    finally:
        await mended.close()


async def test_a_stop_waits_for_what_is_being_read(rig: Rig) -> None:
    await _two_segments(rig)
    async with starting(rig) as (again, gate):
        await again.post.send("new@example.org")
        closing = asyncio.ensure_future(again.store.close())
        again._open = False
        gate.release()
        await closing
        reopened = await Rig(again.root, rig.clock).open()
        try:
            assert len(reopened.clusters()) == 3
            assert not reopened.shard.ring.segments
            assert len(await reopened.post.claim_all()) == 3
        finally:
            await reopened.close()


async def test_a_record_that_is_none_is_put_aside_and_stops_nothing(rig: Rig) -> None:
    entry = Entry(Mark.CARRIED, ALIVE, 0, 0, IN_SPOOL, b"no record\n")
    await rig.shard.journal.append(Kind.CARRY, [pack_entry(entry)], 1, rig.clock.now(), lambda *_: None)
    [sent] = await rig.post.send("a@example.org")
    again = await rig.killed()
    assert [each.key for each in await again.post.claim_all()] == [sent.key]
    [bad] = (again.queue / "quarantine").iterdir()
    assert bad.read_bytes() == b"no record\n"
    assert again.store.engine().quarantined_lines == 1


async def test_a_quarantine_that_cannot_be_read_keeps_no_start(rig: Rig) -> None:
    [sent] = await rig.post.send("a@example.org")
    root = rig.root.with_name("killed")
    copy_as_killed(rig.root, root)
    again = Rig(root, rig.clock)
    again.disk.fail("names", "*/quarantine", times=None)
    await again.open()
    try:
        assert [each.key for each in await again.post.claim_all()] == [sent.key]
    finally:
        await again.close()


async def test_a_begun_record_that_does_not_check_ends_the_start(rig: Rig) -> None:
    [sent] = await rig.post.send("a@example.org")
    line = record.encode(sent).replace(b"a@example.org", b"b@example.org")
    entry = Entry(Mark.CARRIED, ALIVE | BEGUN, 0, 0, IN_SPOOL, line)
    await rig.shard.journal.append(Kind.CARRY, [pack_entry(entry)], 1, rig.clock.now(), lambda *_: None)
    with pytest.raises(StoreUnavailable, match="the journal cannot be read: record line fails its checksum"):
        await rig.killed()


async def test_a_recipient_with_two_locations_is_not_in_flight_twice(rig: Rig) -> None:
    """Only damage makes such: of the last edit in the MANIFEST, or of a frame that gave one up."""
    [sent] = await rig.post.send("a@example.org")
    entry = Entry(Mark.CARRIED, ALIVE, 0, 0, IN_SPOOL, record.encode(sent))
    await rig.shard.journal.append(Kind.CARRY, [pack_entry(entry)], 1, rig.clock.now(), lambda *_: None)
    again = await rig.killed()
    [claimed] = await again.post.claim_all()
    assert claimed.key == sent.key
    await again.clock.run_for(20_000)
    assert await again.post.claim_all() == []
    await again.post.settle(delivered(), claimed)
    await again.clock.run_for(20_000)
    [other] = await again.post.claim_all()
    assert other.key == sent.key
    await again.post.settle(delivered(), other)
    assert not again.listed()


async def test_no_spid_of_an_older_segment_is_given_again(rig: Rig) -> None:
    """Though the clock is behind the SPIDs, and the newest segment holds none."""
    for _ in range(5 << 14):
        rig.store.reserve(several=False)
    [sent] = await rig.post.send("first@example.org")
    claimed = await rig.post.claim_all()
    await rig.seal()
    await rig.store.park(claimed, 0)
    rig.clock.advance(1)
    again = await rig.killed()
    assert again.store.reserve(several=False) > sent.spid


async def test_a_kill_with_a_full_ring_delays_no_mail(rig: Rig) -> None:
    sent = 0
    rig.disk.fail("open", "*.tmp", times=None)
    while not rig.shard.ring.full:
        await rig.post.send("full@example.org")
        sent += 1
        await rig.seal()
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await rig.post.send("full@example.org")
    before = rig
    for starts in range(1, 4):
        again = Rig(rig.root.with_name(f"start{starts}"), rig.clock)
        copy_as_killed(before.root, again.root)
        if starts > 1:
            await before.close()
        for area in ("events", "incoming"):
            again.disk.fail("open", f"*/{area}/*", times=None)
        await again.open()
        if starts < 3:
            await again.post.send("new@example.org")
            sent += 1
            assert len(await again.post.claim_all()) == sent
        else:
            with pytest.raises(StoreUnavailable, match="journal is full"):
                await again.post.send("new@example.org")
            again.disk.mend()
            await again.evacuate()
            await again.post.send("new@example.org")
            assert len(await again.post.claim_all()) == sent + 1
        before = again
    await before.close()
