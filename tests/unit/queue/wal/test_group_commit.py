"""Group commit: in order, done only when durable, and what happens when the disk does not do its part."""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.queueing.spid import SpidSource
from mqcd.disk.file_window import Window
from mqcd.queue.format.frame import HEADER_SIZE, Kind
from mqcd.queue.format.segment_header import SegmentHeader
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.memory.figures import Figures
from mqcd.queue.wal.chain import find_chain
from mqcd.queue.wal.committer import CommitterThread
from mqcd.queue.wal.group_commit import Journal
from mqcd.queue.wal.pending import HAPPENED, MORE, JournalFull, Unplaced
from mqcd.queue.wal.scan import Walk
from mqcd.queue.wal.segments import KEPT_BACK, Ring, Segment
from tests.fakes.clock import FakeClock, turns
from tests.fakes.disk import FaultyDisk, Gate

CAPACITY = 1 << 15
SLOTS = 4


class Bench:
    """A journal alone, without a store around it."""

    def __init__(
        self,
        directory: Path,
        seal_age: int = 3_600_000,
        disk: FaultyDisk | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        directory.mkdir()
        self.directory = directory
        self.disk = disk or FaultyDisk()
        self.clock = FakeClock()
        self.figures = Figures()
        self.sealed: list[int] = []
        self.placed: list[tuple[int, int, int, int]] = []
        self.ring = Ring(directory, SLOTS, 1)
        self.journal = Journal(
            ring=self.ring,
            disk=self.disk,
            committer=CommitterThread(self.disk, asyncio.get_running_loop()),
            clock=self.clock,
            spids=SpidSource(0, 77),
            epoch=1,
            sequence=1,
            capacity=capacity,
            max_entries=1000,
            seal_age=seal_age,
            figures=self.figures,
        )
        self.journal.on_sealed = lambda segment: self.sealed.append(segment.number)

    def append(self, body: bytes, kind: Kind = Kind.SETTLE, count: int = 1) -> asyncio.Future[None]:
        def placed(segment: Segment, ordinal: int, at: int, sequence: int) -> None:
            self.placed.append((segment.number, ordinal, at, sequence))

        return self.journal.append(kind, [body], count, 5, placed)

    def taken(self, number: int) -> None:
        """A segment that an earlier run has left."""
        self.ring.add(Segment(SegmentHeader(1, number, 1, 0, 0, 0, 0), self.ring.path_of(number)))

    async def fill(self, segments: int) -> None:
        for _ in range(segments):
            await self.append(b"x" * (CAPACITY // 4))
            self.journal.seal()

    def recovered(self) -> list[bytes]:
        """The bodies that a start at this moment would find."""
        found = []
        chain = find_chain(FaultyDisk(), self.directory, ManifestState())
        for segment in chain:
            bound = None if segment is chain[-1] else segment.end
            found += [
                bytes(each.body)
                for each in Walk(Window.over(segment.path.read_bytes()), segment, bound=bound)
            ]
        return [body for body in found if body]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path / "journal")
    yield made
    made.disk.mend()
    await made.journal.stop()


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 30)


async def outcomes(futures: Sequence[asyncio.Future[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*futures, return_exceptions=True)


async def test_frames_are_placed_in_the_order_of_appending(bench: Bench) -> None:
    await asyncio.gather(*(bench.append(b"%d" % n, count=2) for n in range(50)))
    assert bench.recovered() == [b"%d" % n for n in range(50)]
    assert [ordinal for _, ordinal, _, _ in bench.placed] == list(range(0, 100, 2))
    assert [sequence for *_, sequence in bench.placed] == list(range(1, 101, 2))
    data = (bench.directory / "1.wal").read_bytes()
    assert data[bench.placed[7][2] :].startswith(b"7")


async def test_a_frame_is_done_only_after_its_groups_sync(bench: Bench) -> None:
    gate = bench.disk.block("datasync")
    future = bench.append(b"one")
    await reached(gate)
    await turns()
    assert not future.done()
    assert not bench.placed
    gate.release()
    await future
    assert bench.placed


async def test_a_group_is_what_gathered_while_the_last_was_syncing(bench: Bench) -> None:
    await bench.append(b"begun")
    before = bench.disk.count("datasync")
    gate = bench.disk.block("datasync")
    first = bench.append(b"first")
    await reached(gate)
    rest = [bench.append(b"%d" % n) for n in range(20)]
    gate.release()
    await asyncio.gather(first, *rest)
    assert bench.disk.count("datasync") == before + 2
    assert bench.figures.syncs == 3
    assert bench.recovered() == [b"begun", b"first", *(b"%d" % n for n in range(20))]


async def test_a_group_waits_while_turns_of_the_loop_bring_more(bench: Bench) -> None:
    futures = [bench.append(b"0")]
    for number in range(1, 4):
        await turns(1)
        futures.append(bench.append(b"%d" % number))
    await asyncio.gather(*futures)
    assert bench.figures.syncs == 1
    first = bench.append(b"first")
    while not first.done():
        futures.append(bench.append(b"more"))
        await turns(1)
    await asyncio.gather(*futures)
    assert bench.figures.syncs > 2


async def test_synced_sequences_say_what_was_durable_before(bench: Bench) -> None:
    gate = bench.disk.block("datasync")
    first = bench.append(b"first")
    await reached(gate)
    rest = [bench.append(b"x"), bench.append(b"y")]
    gate.release()
    await asyncio.gather(first, *rest)
    [segment] = find_chain(FaultyDisk(), bench.directory, ManifestState())
    walk = Walk(Window.over(segment.path.read_bytes()), segment, bound=None)
    assert [(each.header.sequence, each.header.synced) for each in walk] == [(1, 0), (2, 1), (3, 1)]


async def test_a_frame_that_does_not_fit_begins_the_next_segment(bench: Bench) -> None:
    bodies = [bytes([65 + n]) * (CAPACITY // 4 - HEADER_SIZE) for n in range(5)]
    await asyncio.gather(*map(bench.append, bodies))
    assert bench.sealed == [1]
    assert {number for number, *_ in bench.placed} == {1, 2}
    assert bench.recovered() == bodies


async def test_a_new_file_is_named_before_its_first_frame_is_done(bench: Bench) -> None:
    await bench.append(b"one")
    order = [name for name, _ in bench.disk.order("open", "reserve", "sync_dir", "pwritev", "datasync")]
    filled = ["sync_dir", "pwritev", "datasync"]
    assert order == ["open", "reserve", *filled, "pwritev", "datasync"]


@pytest.mark.parametrize("operation", ["pwritev", "datasync"])
async def test_a_failure_fails_accepts_and_moves_verdicts(bench: Bench, operation: str) -> None:
    await bench.append(b"before", Kind.ACCEPT)
    gate = bench.disk.block("datasync")
    first = bench.append(b"first")
    await reached(gate)
    futures = [
        bench.append(b"accept", Kind.ACCEPT),
        bench.append(b"verdict"),
        bench.append(b"accept too", Kind.ACCEPT),
        bench.append(b"begun", Kind.BEGUN),
    ]
    bench.disk.fail(operation)
    gate.release()
    found = await outcomes([first, *futures])
    assert [isinstance(each, StoreUnavailable) for each in found] == [False, True, False, True, False]
    assert bench.recovered() == [b"before", b"first", b"verdict", b"begun"]
    assert [number for number, *_ in bench.placed] == [1, 1, 2, 2]


async def test_the_abandoned_segment_is_never_written_again(bench: Bench) -> None:
    await bench.append(b"before")
    inode = (bench.directory / "1.wal").stat().st_ino
    bench.disk.fail("datasync", "*/1.wal")
    await bench.append(b"verdict")
    failed = bench.ring.segments[1].path
    assert failed.stat().st_ino == inode
    assert not bench.ring.may_recycle(bench.ring.segments[1])
    before = failed.read_bytes()
    await bench.append(b"later")
    bench.journal.seal()
    await bench.append(b"last")
    assert failed.read_bytes() == before
    assert bench.sealed[0] == 1
    assert bench.recovered() == [b"before", b"verdict", b"later", b"last"]


async def test_a_file_that_fails_at_its_first_write_goes(bench: Bench) -> None:
    bench.disk.fail("datasync", "*/1.wal")
    await bench.append(b"verdict")
    assert list(bench.ring.segments) == [2]
    assert bench.recovered() == [b"verdict"]
    assert not (bench.directory / "1.wal").exists()


async def test_a_file_that_finds_no_room_gives_back_what_it_got(bench: Bench) -> None:
    bench.disk.fail("reserve", "*/1.wal", code=errno.ENOSPC)
    await bench.append(b"verdict")
    assert not (bench.directory / "1.wal").exists()
    assert bench.recovered() == [b"verdict"]


@pytest.mark.parametrize("earlier", [True, False], ids=["in a segment in use", "in a new segment"])
async def test_an_accept_that_failed_is_not_there_after_a_kill(bench: Bench, earlier: bool) -> None:
    if earlier:
        await bench.append(b"before", Kind.ACCEPT)
    bench.disk.fail("datasync")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await bench.append(b"accept", Kind.ACCEPT)
    await bench.journal.quiet()
    assert bench.recovered() == ([b"before"] if earlier else [])


@pytest.mark.parametrize("kinds", [(Kind.REPLACE,), (Kind.TAKE, Kind.ACCEPT)])
async def test_new_work_that_a_full_ring_refuses_after_a_failure_is_not_there_after_a_kill(
    bench: Bench, kinds: Sequence[Kind]
) -> None:
    await bench.fill(SLOTS - KEPT_BACK - 1)
    await bench.append(b"before")
    bench.disk.fail("datasync")
    failed = await outcomes([bench.append(b"%d" % kind, kind) for kind in kinds])
    assert all(isinstance(each, StoreUnavailable) for each in failed)
    assert bench.ring.full
    await bench.journal.quiet()
    assert bench.recovered()[-1] == b"before"


async def test_nobody_waits_for_quiet_on_a_dead_disk(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    future = bench.append(b"verdict")
    await asyncio.wait_for(bench.journal.quiet(), 60)
    assert bench.journal.trouble.failing
    assert not future.done()


async def test_a_disk_that_goes_on_failing_is_reported_and_recovers(bench: Bench) -> None:
    bench.disk.fail("datasync", times=2, code=errno.ENOSPC)
    with pytest.raises(StoreUnavailable, match="No space left"):
        await bench.append(b"accept", Kind.ACCEPT)
    verdict = bench.append(b"verdict")
    await bench.journal.quiet()
    assert bench.journal.trouble.failing
    assert f"{bench.directory}/2.wal: No space left" in bench.journal.trouble.text
    while not verdict.done():
        bench.clock.advance(1000)
        await asyncio.sleep(0)
    assert bench.journal.trouble.failures == 0
    assert bench.journal.trouble.text == ""
    assert bench.recovered() == [b"verdict"]


async def test_while_it_fails_only_what_has_happened_waits(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    told: list[str] = []
    bench.journal.on_mended = lambda: told.append(bench.journal.trouble.text)
    happened = [bench.append(b"%d" % kind, kind) for kind in (Kind.SETTLE, Kind.PARK, Kind.REPORT)]
    wished = [bench.append(b"%d" % kind, kind) for kind in (Kind.TAKE, Kind.BEGUN, Kind.CARRY)]
    assert all(isinstance(each, StoreUnavailable) for each in await outcomes(wished))
    late = await outcomes([bench.append(b"late", Kind.BEGUN), bench.append(b"late", Kind.ACCEPT)])
    assert [str(each) for each in late] == [bench.journal.trouble.text] * 2
    assert not any(future.done() for future in happened)
    bench.disk.mend()
    assert told == []
    await bench.clock.run_for(1000)
    await asyncio.wait_for(asyncio.gather(*happened), 60)
    assert told == [""]
    assert bench.recovered() == [b"%d" % kind for kind in (Kind.SETTLE, Kind.PARK, Kind.REPORT)]


async def test_what_a_failed_frame_leads_to_waits_for_the_next_try(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    later: list[asyncio.Future[None]] = []
    wish = bench.journal.append(
        Kind.TAKE, [b"wish"], 1, 5, lambda *_: None, lambda: later.append(bench.append(b"happened"))
    )
    assert isinstance((await outcomes([wish]))[0], StoreUnavailable)
    bench.disk.mend()
    await turns(20)
    await bench.journal.quiet()
    assert (len(later), later[0].done()) == (1, False)
    await bench.clock.run_for(1000)
    await asyncio.wait_for(later[0], 60)
    assert bench.recovered() == [b"happened"]


async def test_a_disk_that_fails_is_tried_every_ten_seconds(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    verdict = bench.append(b"verdict")
    await bench.journal.quiet()
    for wait in (1000, 10_000, 10_000, 10_000):
        tries = bench.journal.trouble.failures
        while bench.clock.next_wake() is None:
            await asyncio.sleep(0)
        assert bench.clock.next_wake() == wait
        bench.clock.advance(wait)
        while bench.journal.trouble.failures == tries:
            await asyncio.sleep(0)
    bench.disk.mend()
    while not verdict.done():
        bench.clock.advance(10_000)
        await asyncio.sleep(0)


async def test_a_stop_with_only_a_note_waiting_is_clean(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    with pytest.raises(StoreUnavailable):
        await bench.append(b"accept", Kind.ACCEPT)
    await bench.journal.quiet()
    [note] = bench.journal._pending
    await bench.journal.stop()
    assert note.future.cancelled()


async def test_a_stop_while_it_fails_lets_nobody_wait(bench: Bench) -> None:
    bench.disk.fail("datasync", times=None)
    verdict = bench.append(b"verdict")
    await bench.journal.quiet()
    await bench.journal.stop()
    [found] = await asyncio.wait_for(outcomes([verdict]), 60)
    assert isinstance(found, StoreUnavailable)


@pytest.mark.parametrize("kind", [Kind.ACCEPT, Kind.TAKE])
async def test_in_a_full_ring_new_work_fails_and_verdicts_do_not(bench: Bench, kind: Kind) -> None:
    await bench.fill(SLOTS - KEPT_BACK)
    assert bench.ring.full
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await bench.append(b"new", kind)
    await bench.append(b"verdict")
    assert len(bench.ring.segments) == SLOTS - KEPT_BACK + 1
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await bench.append(b"new", kind)
    verdict, new = await outcomes([bench.append(b"last"), bench.append(b"new", kind)])
    assert (verdict, type(new)) == (None, JournalFull)
    assert bench.recovered()[-2:] == [b"verdict", b"last"]


async def test_a_segment_takes_new_work_until_it_is_full(bench: Bench) -> None:
    await bench.fill(SLOTS - KEPT_BACK - 1)
    for _ in range(3):
        await bench.append(b"x" * (CAPACITY // 4), Kind.ACCEPT)
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await bench.append(b"x" * (CAPACITY // 4), Kind.ACCEPT)
    assert bench.ring.free_slots == KEPT_BACK


async def test_a_start_uses_any_free_slot_but_no_spare(bench: Bench) -> None:
    for number in range(1, SLOTS):
        bench.taken(number)
    await bench.append(b"mail", Kind.ACCEPT)
    assert bench.ring.free_slots == 0
    await bench.append(b"more", Kind.ACCEPT)
    bench.journal.seal()
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await bench.append(b"mail", Kind.ACCEPT)
    await bench.append(b"verdict")


async def test_a_start_that_finds_no_free_slot_takes_no_new_work(bench: Bench) -> None:
    for number in range(1, SLOTS + 1):
        bench.taken(number)
    with pytest.raises(StoreUnavailable, match="journal is full"):
        await bench.append(b"mail", Kind.ACCEPT)
    del bench.ring.segments[1]
    await bench.append(b"mail", Kind.ACCEPT)


async def test_in_a_full_ring_a_segment_stays_open_beyond_its_age(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal", seal_age=0)
    try:
        for number in range(1, SLOTS - KEPT_BACK):
            bench.taken(number)
        bench.ring.fresh = False
        await bench.append(b"mail", Kind.ACCEPT)
        await turns()
        assert bench.sealed == []
        await bench.append(b"more", Kind.ACCEPT)
        del bench.ring.segments[1]
        await turns()
        assert bench.sealed == [SLOTS - KEPT_BACK]
    finally:
        await bench.journal.stop()


class Loop:
    """The event loop as `Sealing` knows it, but its timers go by a clock that the test moves."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Task[None]:
        async def wait() -> None:
            await self._clock.sleep(round(seconds * 1000))
            callback()

        return asyncio.get_running_loop().create_task(wait())


async def test_steady_mail_seals_a_segment_at_its_age(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal", seal_age=5000)
    bench.journal._sealing._loop = cast("asyncio.AbstractEventLoop", Loop(bench.clock))
    try:
        for second in range(20):
            await bench.append(b"mail", Kind.ACCEPT)
            bench.clock.advance(999)
            await turns()
            assert len(bench.sealed) == second // 5
            bench.clock.advance(1)
            await turns()
            assert len(bench.sealed) == (second + 1) // 5
            for number in bench.sealed:
                bench.ring.segments.pop(number, None)
    finally:
        await bench.journal.stop()


async def test_verdicts_always_find_a_slot(bench: Bench) -> None:
    await bench.fill(3 * SLOTS)
    await bench.append(b"verdict")
    assert len(bench.ring.segments) == 3 * SLOTS + 1
    assert bench.recovered()[-1] == b"verdict"


async def test_accepts_are_taken_again_when_segments_have_been_freed(bench: Bench) -> None:
    await bench.fill(SLOTS)
    with pytest.raises(StoreUnavailable):
        await bench.append(b"accept", Kind.ACCEPT)
    for number in range(1, KEPT_BACK + 2):
        del bench.ring.segments[number]
    await bench.append(b"accept", Kind.ACCEPT)
    assert bench.ring.segments[SLOTS + 1].path.name == f"{SLOTS + 1}.wal"


async def test_a_recycled_file_gets_the_new_name_first(bench: Bench) -> None:
    await bench.fill(1)
    segment = bench.ring.segments.pop(1)
    inode = segment.path.stat().st_ino
    assert bench.ring.may_recycle(segment)
    bench.ring.free.append(segment.path)
    before = len(bench.disk.order("rename", "sync_dir"))
    await bench.append(b"verdict")
    assert [name for name, _ in bench.disk.order("rename", "sync_dir")][before:] == ["rename", "sync_dir"]
    assert (bench.directory / "2.wal").stat().st_ino == inode
    assert not segment.path.exists()
    assert bench.recovered() == [b"verdict"]


async def test_a_file_that_cannot_be_recycled_is_removed(bench: Bench) -> None:
    await bench.fill(1)
    path = bench.directory / "ready-1.wal"
    path.write_bytes(bytes(CAPACITY))
    bench.ring.free.append(path)
    bench.disk.fail("rename", "*/2.wal")
    await bench.append(b"verdict")
    assert not path.exists()
    assert bench.recovered()[-1] == b"verdict"


def test_each_kind_of_frame_is_one_that_may_wait_or_be_refused() -> None:
    assert not HAPPENED & MORE
    assert set(Kind) - HAPPENED - MORE == {Kind.BEGUN, Kind.CARRY, Kind.UNKNOWN}


def test_files_in_use_failed_or_too_many_are_not_recycled(tmp_path: Path) -> None:
    ring = Ring(tmp_path, 4, 1)
    segment = Segment(SegmentHeader(1, 1, 1, 0, 0, 0, 0), ring.path_of(1))
    ring.add(segment)
    assert ring.may_recycle(segment)
    segment.readers = 1
    assert not ring.may_recycle(segment)
    segment.readers, segment.failed = 0, True
    assert not ring.may_recycle(segment)
    segment.failed = False
    ring.free = [ring.path_of(number) for number in range(10, 14)]
    assert not ring.may_recycle(segment)


async def test_a_stopped_journal_takes_nothing(bench: Bench) -> None:
    await bench.append(b"one")
    await bench.journal.stop()
    [found] = await asyncio.wait_for(outcomes([bench.append(b"two")]), 60)
    assert isinstance(found, StoreUnavailable)


def wrong(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(("callback", "placed"), [("on_mended", 0), ("on_begun", 0), ("on_sealed", 1)])
async def test_an_error_in_a_callback_breaks_the_journal(bench: Bench, callback: str, placed: int) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    setattr(bench.journal, callback, wrong)
    gate = bench.disk.block("datasync")
    if callback == "on_mended":
        bench.disk.fail("datasync", times=2)
    verdict = bench.append(b"verdict")
    await reached(gate)
    bench.journal.seal()
    gate.release()
    async with asyncio.timeout(30):
        await bench.journal.quiet()
        await bench.clock.run_for(1000)
        [found] = await outcomes([verdict])
    assert isinstance(found, Unplaced) == (not placed)
    assert len(bench.placed) == placed
    assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError]
    with pytest.raises(StoreUnavailable, match="internal error"):
        await bench.append(b"later")


def refused_wrongly(bench: Bench, kind: Kind) -> asyncio.Future[None]:
    """Append a frame whose `failed` raises."""
    return bench.journal.append(kind, [b"wrong"], 1, 5, wrong, wrong)


async def test_callbacks_that_raise_leave_no_frame_waiting(bench: Bench) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    bench.disk.fail("datasync")
    futures = [refused_wrongly(bench, Kind.ACCEPT) for _ in range(3)] + [bench.append(b"verdict")]
    found = await asyncio.wait_for(outcomes(futures), 30)
    assert [type(each) for each in found] == [StoreUnavailable] * 4
    assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError]
    assert bench.journal.broken


async def test_a_stop_ends_though_callbacks_raise(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.disk.fail("datasync", times=None)
    futures = [refused_wrongly(bench, Kind.SETTLE) for _ in range(2)]
    await bench.journal.quiet()
    await asyncio.wait_for(bench.journal.stop(), 30)
    assert [type(each) for each in await outcomes(futures)] == [StoreUnavailable] * 2
    assert "ZeroDivisionError" in caplog.text


async def test_a_frame_that_cannot_be_packed_loses_none_of_its_group(bench: Bench) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    futures = [bench.append(b"verdict"), bench.journal.append(Kind.SETTLE, [], 1, -1, wrong)]
    found = await asyncio.wait_for(outcomes(futures), 30)
    assert [type(each) for each in found] == [StoreUnavailable] * 2
    assert [type(fault["exception"]) for fault in faults] == [struct.error]


async def test_an_error_of_a_retry_is_reported_at_once(bench: Bench) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    bench.disk.fail("datasync", times=2)
    verdict = bench.append(b"verdict")
    await bench.journal.quiet()
    bench.ring.next_number = -1
    await bench.clock.run_for(1000)
    [found] = await asyncio.wait_for(outcomes([verdict]), 30)
    assert isinstance(found, StoreUnavailable)
    assert [type(fault["exception"]) for fault in faults] == [struct.error]


class FailsToClose(FaultyDisk):
    """A disk that reports a write error when the file is closed, as network file systems do."""

    def close(self, fd: int) -> None:
        super().close(fd)
        raise OSError(errno.EIO, "Input/output error")


async def test_a_failed_file_that_fails_to_close_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path / "journal", disk=FailsToClose())
    bench.disk.fail("datasync", "*/1.wal")
    await asyncio.wait_for(bench.append(b"verdict"), 30)
    assert not (bench.directory / "1.wal").exists()
    assert "a journal file that has failed" in caplog.text
    await bench.journal.stop()


async def test_a_group_that_a_stop_waits_for_starts_no_timer(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal", seal_age=5000)
    bench.journal._sealing._loop = cast("asyncio.AbstractEventLoop", Loop(bench.clock))
    gate = bench.disk.block("datasync", "*/1.wal")
    verdict = bench.append(b"verdict")
    await reached(gate)
    quiet = asyncio.ensure_future(bench.journal.quiet())
    await turns()
    assert not quiet.done()
    stop = asyncio.ensure_future(bench.journal.stop())
    await turns()
    assert quiet.done()
    gate.release()
    await asyncio.gather(verdict, stop)
    await turns()
    assert bench.clock.next_wake() is None


class Wrong(FaultyDisk):
    """A disk with a mistake in its program."""

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_stop_does_not_wait_for_a_writer_that_fails_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "journal", disk=Wrong())
    gate = bench.disk.block("datasync", "*/1.wal")
    verdict = bench.append(b"verdict")
    await reached(gate)
    stop = asyncio.ensure_future(bench.journal.stop())
    await turns()
    gate.release()
    async with asyncio.timeout(30):
        [found] = await outcomes([verdict])
        await stop
    assert isinstance(found, StoreUnavailable)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_error_in_the_writer_is_logged_and_delays_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path / "journal", disk=Wrong())
    async with asyncio.timeout(30):
        with pytest.raises(StoreUnavailable, match="only a restart helps"):
            await bench.append(b"first", Kind.ACCEPT)
        assert "ZeroDivisionError" in caplog.text
        with pytest.raises(StoreUnavailable, match="only a restart helps"):
            await bench.append(b"second", Kind.TAKE)
        await bench.journal.quiet()
    assert bench.journal.trouble.failing
    await bench.journal.stop()
