"""What the disk refuses: who is told, what waits, what is given up for room, and how it goes on by itself."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.disk.durable import Buffer, Disk
from mqcd.queue.admin.fsck.survey import survey
from mqcd.queue.format.segment_header import HEADER_SIZE
from mqcd.queue.wal.segments import Segment
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import delivered
from tests.fakes.disk import FaultyDisk
from tests.fakes.killed import copy_as_killed
from tests.unit.queue.support import Rig

LARGE = b"x" * 20_000
PROBE_MS = 10_000


async def soon(rig: Rig, done: Callable[[], bool], ms: int = 2 * PROBE_MS) -> None:
    """Let the clock run until it is done, at most so long; threads have their turns meanwhile."""
    ends = rig.clock.monotonic() + ms
    while not done():
        assert rig.clock.monotonic() < ends, "it does not go on by itself"
        wake = rig.clock.next_wake()
        if wake is not None:
            rig.clock.advance(wake)
        # Real threads answer when they are done, not when a fake clock says so.
        await asyncio.to_thread(lambda: None)


async def sealed(rig: Rig) -> Segment:
    """A segment that the checkpointer is to evacuate by itself."""
    for _ in range(30):
        await asyncio.sleep(0)
    segment = await rig.seal()
    rig.clock.advance(rig.options.settings.journal.evacuate_age)
    rig.store._live.checkpointer.wake()
    return segment


def reserve_files(rig: Rig) -> list[Path]:
    return [root / "reserve" for root in (rig.queue, rig.spool)]


async def made_ready(rig: Rig) -> None:
    """The first round of the checkpointer is over."""
    await soon(rig, lambda: all(path.exists() for path in reserve_files(rig)))


# ---------------------------------------------------------------- the door


async def test_the_door_names_file_and_error_while_the_journal_fails(rig: Rig) -> None:
    rig.disk.fail("datasync", "*/journal/*", times=None, code=errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await rig.post.send("a@example.org")
    await soon(rig, lambda: bool(rig.store.stalled()))
    assert rig.store.refusing() == rig.store.stalled()
    assert rig.store.stalled().startswith(f"the journal cannot be written: {rig.queue}/journal/")
    assert rig.store.stalled().endswith("No space left on device")
    assert await rig.post.claim_all() == []
    told: list[None] = []
    rig.store.watch(lambda: told.append(None))
    rig.disk.mend()
    await soon(rig, lambda: not rig.store.stalled())
    assert told, "whoever was given nothing is told to ask again"
    await rig.post.send("b@example.org")


async def test_a_broken_journal_is_named_and_nothing_is_tried(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    rig.shard.journal.break_off()
    assert rig.store.refusing() == rig.store.stalled() == rig.shard.journal.broken
    assert await rig.post.claim_all() == []


async def test_the_door_says_why_the_journal_cannot_be_emptied(rig: Rig) -> None:
    await made_ready(rig)
    rig.disk.fail("pwritev", f"{rig.root}/events/*", times=None, code=errno.EDQUOT)
    while not rig.store.refusing():
        await rig.post.send("a@example.org")
        await rig.seal()
    await soon(rig, lambda: "Disk quota exceeded" in rig.store.refusing())
    assert f"{rig.root}/events/" in rig.store.refusing()
    rig.disk.mend()
    await soon(rig, lambda: not rig.store.refusing())


async def test_each_root_counts_for_the_door(tmp_path: Path) -> None:
    for number, root in enumerate(("queue", "spool", "events")):
        rig = await Rig(tmp_path / str(number)).open()
        rig.store._space._disk = Short(rig.root / root)
        rig.clock.advance(1000)
        assert rig.store.refusing().startswith(f"{rig.root / root}: 0 octets are free")
        assert rig.store.engine().disk_free_bytes[root] == 0
        await rig.close()


class Short(Disk):
    """A disk one of whose roots is full."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def free(self, path: Path) -> tuple[int, int]:
        return (0, 1 << 40) if path == self._root else (1 << 60, 1 << 40)


async def test_a_root_that_cannot_be_asked_is_reported_as_empty(rig: Rig) -> None:
    (rig.root / "events").rmdir()
    assert rig.store.engine().disk_free_bytes["events"] == 0
    assert rig.store.engine().disk_free_inodes["events"] == 0
    (rig.root / "events").mkdir()


# ---------------------------------------------------------------- large messages


async def test_a_refused_large_message_keeps_its_file_while_in_doubt(rig: Rig) -> None:
    rig.disk.fail("datasync", "*/journal/*", times=None)
    with pytest.raises(StoreUnavailable):
        await rig.post.send("a@example.org", content=LARGE)
    assert len(rig.spooled()) == 1, "a kill may bring its frame to light"
    rig.disk.mend()
    await soon(rig, lambda: not rig.store._live.shard.journal.trouble.failures)
    assert rig.spooled() == []
    assert rig.listed() == []


async def test_a_refused_large_message_is_taken_again_once_it_is_certain(rig: Rig) -> None:
    large = rig.post.submission("a@example.org", content=LARGE)
    rig.disk.fail("datasync", "*/journal/*")
    with pytest.raises(StoreUnavailable):
        await rig.store.enqueue(large)
    gate = rig.disk.block("datasync", "*/journal/*")
    again = asyncio.ensure_future(rig.store.enqueue(large))
    # Until the frame waits, or it was refused; the journal is at its new segment meanwhile.
    while not (again.done() or rig.shard.journal._pending):
        await asyncio.to_thread(lambda: None)
    gate.release()
    with pytest.raises(StoreUnavailable, match="not certain"):
        await again
    await soon(rig, lambda: not rig.shard.journal.trouble.failures)
    await rig.store.enqueue(large)
    [claimed] = await rig.post.claim_all()
    assert await rig.post.read(claimed) == LARGE


async def test_a_spool_that_hangs_as_a_file_is_opened_keeps_no_small_mail_waiting(rig: Rig) -> None:
    await rig.post.send("a@example.org", content=LARGE)
    [claimed] = await rig.post.claim_all()
    gate = rig.disk.block("open", "*/s??/*")
    opening = asyncio.ensure_future(rig.post.read(claimed))
    sending = asyncio.ensure_future(rig.post.send("large@example.org", content=LARGE))
    assert await asyncio.to_thread(gate.reached.wait, 30)
    await rig.post.send("small@example.org")
    assert not any(each.done() for each in (opening, sending))
    gate.release()
    assert await opening == LARGE
    await sending


@pytest.mark.parametrize("large", [True, False])
async def test_a_file_of_the_spool_that_nobody_waits_for_is_closed(rig: Rig, large: bool) -> None:
    if not large:
        await rig.post.send("a@example.org", content=LARGE)
    claimed = await rig.post.claim_all()
    before = dict(rig.disk._paths)
    gate = rig.disk.block("open", "*/s??/*")
    work: Awaitable[object] = (
        rig.post.send("large@example.org", content=LARGE) if large else rig.post.read(claimed[0])
    )
    waits = asyncio.ensure_future(work)
    assert await asyncio.to_thread(gate.reached.wait, 30)
    waits.cancel()
    await asyncio.sleep(0)
    gate.release()
    await asyncio.wait([waits])
    assert rig.disk._paths == before
    assert len(rig.spooled()) == len(claimed)


async def test_a_draft_that_cannot_even_be_removed_is_reported_as_refused(rig: Rig) -> None:
    rig.disk.fail("datasync", "*/s??/*", code=errno.EDQUOT)
    rig.disk.fail("unlink", "*/s??/*", times=None, code=errno.EROFS)
    with pytest.raises(StoreUnavailable, match="Disk quota"):
        await rig.post.send("a@example.org", content=LARGE)


async def test_a_content_that_cannot_be_read_is_no_fault_of_the_store(rig: Rig) -> None:
    [sent] = await rig.post.send("a@example.org", content=LARGE)
    [claimed] = await rig.post.claim_all()
    rig.disk.fail("pread", "*.msg")
    content = await rig.store.content(claimed)
    with pytest.raises(ContentUnavailable, match=f"{sent.spid:016X}.msg: Input/output error"):
        await content.read(100)
    content.close()
    assert await rig.post.read(claimed) == LARGE


@pytest.mark.parametrize("octets", [LARGE[:-1], b"", LARGE + b"y"], ids=["short", "empty", "long"])
async def test_what_is_left_of_a_message_is_not_given_as_the_message(rig: Rig, octets: bytes) -> None:
    [sent] = await rig.post.send("a@example.org", content=LARGE)
    [claimed] = await rig.post.claim_all()
    [path] = rig.spool.glob("s??/*.msg")
    path.write_bytes(octets)
    why = f"{sent.spid:016X}.msg is {len(octets)} octets long; its records say {len(LARGE)}"
    with pytest.raises(ContentUnavailable, match=why):
        await rig.store.content(claimed)
    path.write_bytes(LARGE)
    assert await rig.post.read(claimed) == LARGE


# ---------------------------------------------------------------- what is read


async def test_a_cluster_that_could_not_be_read_is_offered_again(rig: Rig) -> None:
    await rig.post.send("a@example.org")
    await rig.evacuate()
    rig.disk.fail("open", "*/incoming/*", code=errno.EMFILE)
    assert await rig.post.claim_all() == []
    await rig.clock.run_for(PROBE_MS)
    assert [each.address for each in await rig.post.claim_all()] == ["a@example.org"]


async def test_a_find_is_put_aside_once_however_often_it_is_tried(rig: Rig) -> None:
    for name in "abc":
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    path = rig.queue / rig.clusters()[0]
    path.write_bytes(path.read_bytes().replace(b"b@example", b"X@example"))
    rig.disk.fail("datasync", "*/quarantine/*", code=errno.ENOSPC)
    assert await rig.post.claim_all() == []
    assert not list((rig.queue / "quarantine").iterdir())
    rig.disk.fail("datasync", "*/journal/*", times=2)
    await rig.clock.run_for(PROBE_MS)
    assert await rig.post.claim_all() == []
    assert rig.shard.figures.quarantined == 0
    await soon(rig, lambda: not rig.store.stalled())
    assert [each.address[0] for each in await rig.post.claim_all()] == ["a", "c"]
    [aside] = (rig.queue / "quarantine").iterdir()
    assert aside.read_bytes().count(b"\n") == 1
    assert rig.shard.figures.quarantined == 1


async def test_a_find_whose_file_vanishes_does_not_set_its_cluster_aside(rig: Rig) -> None:
    for name in "abc":
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    path = rig.queue / rig.clusters()[0]
    path.write_bytes(path.read_bytes().replace(b"b@example", b"X@example"))
    rig.disk.fail("rename", "*/quarantine/*", code=errno.ENOENT)
    assert await rig.post.claim_all() == []
    await rig.clock.run_for(PROBE_MS)
    assert [each.address[0] for each in await rig.post.claim_all()] == ["a", "c"]


async def test_an_entry_that_could_not_be_read_is_due_again_soon(rig: Rig) -> None:
    await rig.post.defer_new("a@example.org", rig.clock.now() + MINUTE)
    rig.clock.advance(MINUTE)
    rig.disk.fail("pread", "*/journal/*")
    assert await rig.post.claim_all() == []
    rig.clock.advance(PROBE_MS)
    assert len(await rig.post.claim_all()) == 1


class Wrong(FaultyDisk):
    """A disk with a mistake in the part that evacuations need."""

    @contextmanager
    def watching(self, path: Path) -> Iterator[int]:
        yield 1 // 0


async def test_a_mistake_in_the_checkpointer_is_reported_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = await Rig(tmp_path / "q", disk=Wrong()).open()
    await rig.post.send("a@example.org")
    await sealed(rig)
    await soon(rig, lambda: bool(rig.store._live.checkpointer.trouble))
    assert "the checkpointer has failed" in rig.store._live.checkpointer.trouble
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(ZeroDivisionError):
        await rig.close()


# ---------------------------------------------------------------- the reserve


async def test_the_reserve_goes_for_an_evacuation_and_comes_back(rig: Rig) -> None:
    await made_ready(rig)
    sizes = {path.stat().st_size for path in reserve_files(rig)}
    assert sizes == {rig.options.settings.journal.segmentsize}
    await rig.post.send("a@example.org")
    rig.disk.fail("pwritev", f"{rig.spool}/*", code=errno.ENOSPC)
    segment = await sealed(rig)
    before = rig.clock.monotonic()
    await soon(rig, lambda: segment.number not in rig.shard.ring.segments, ms=1)
    assert rig.clock.monotonic() == before, "there was nothing to wait for"
    assert len(rig.spooled()) == 1
    await made_ready(rig)


async def test_without_reserve_the_evacuation_waits(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("a@example.org")
    rig.disk.fail("pwritev", f"{rig.spool}/*", times=None, code=errno.ENOSPC)
    segment = await sealed(rig)
    await soon(rig, lambda: bool(rig.store._live.checkpointer.trouble))
    assert not any(path.exists() for path in reserve_files(rig))
    assert rig.spooled() == [], "what was half-written takes no room"
    rig.disk.mend()
    await soon(rig, lambda: segment.number not in rig.shard.ring.segments)
    assert rig.store._live.checkpointer.trouble == ""


def without_ready_slots(rig: Rig) -> None:
    """The next segment has to make its file, for which there is room only where the reserve file was."""
    current = rig.shard.ring.current
    rig.shard.ring.free.clear()
    for path in (rig.queue / "journal").iterdir():
        if current is None or path != current.path:
            path.unlink()


class Tight(FaultyDisk):
    """A disk that has no room, when it is `full`, until the reserve file in the queue root has gone."""

    def __init__(self, queue: Path, *, full: bool) -> None:
        super().__init__()
        self.reserve_file = queue / "reserve"
        self.full = full

    def want_room(self) -> None:
        if self.full and self.reserve_file.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def free(self, path: Path) -> tuple[int, int]:
        return (10_000, 1 << 20) if self.full else super().free(path)


class TightForSegments(Tight):
    """For another segment it has none."""

    def reserve(self, fd: int, octets: int) -> None:
        self.want_room()
        super().reserve(fd, octets)


async def test_the_reserve_goes_for_mail_in_flight(tmp_path: Path) -> None:
    disk = TightForSegments(tmp_path / "q" / "queue", full=False)
    rig = await Rig(tmp_path / "q", disk=disk).open()
    await made_ready(rig)
    await rig.post.send("in-flight@example.org")
    await rig.post.claim_all()
    without_ready_slots(rig)
    disk.full = True
    segment = await sealed(rig)
    await soon(rig, lambda: not any(path.exists() for path in reserve_files(rig)))
    mended = asyncio.Event()
    rig.shard.journal.trouble.when_certain(mended.set)
    await rig.clock.run_for(1000)
    await mended.wait()
    while segment.number in rig.shard.ring.segments:
        await asyncio.to_thread(lambda: None)
    disk.full = False
    await rig.close()


async def started_full(rig: Rig, root: Path) -> tuple[Rig, TightForSegments]:
    """A start on a copy of the queue that has the room of its reserve file alone, and takes that."""
    disk = TightForSegments(root / "queue", full=True)
    again = Rig(root, rig.clock, disk=disk)
    opening = asyncio.create_task(again.open())
    await soon(again, opening.done)
    await opening
    assert not any(path.exists() for path in reserve_files(again))
    return again, disk


async def test_the_reserve_goes_for_unknown_outcomes_at_a_start(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("in-flight@example.org")
    await rig.store.begin(await rig.post.claim_all(), "mx")
    without_ready_slots(rig)
    root = rig.root.with_name("cut")
    copy_as_killed(rig.root, root)
    again, disk = await started_full(rig, root)
    assert again.observer.verbs() == [Verb.OUTCOME_UNKNOWN]
    assert len(await again.post.claim_all()) == 1
    disk.full = False
    await again.close()


async def test_the_reserve_gives_a_start_room_for_a_lost_load(rig: Rig) -> None:
    await made_ready(rig)
    for name in ("quiet", "done", "rests"):
        await rig.post.send(f"{name}@example.org")
    await rig.evacuate()
    _, done = await rig.store.claim(2, rig.clock.now())
    await rig.post.settle(delivered(), done)
    await rig.post.send("later@example.org")
    segment = rig.shard.ring.current
    assert segment is not None
    without_ready_slots(rig)
    root = rig.root.with_name("cut")
    copy_as_killed(rig.root, root)
    with (root / "queue" / "journal" / segment.path.name).open("r+b") as file:
        # The frame that took two from the cluster is the first.
        file.seek(HEADER_SIZE + 100)
        file.write(b"?")
    again, disk = await started_full(rig, root)
    assert again.observer.verbs() == [Verb.OUTCOME_UNKNOWN]
    claimed = await again.post.claim_all()
    assert sorted(each.address.partition("@")[0] for each in claimed) == ["later", "quiet", "rests"]
    disk.full = False
    await again.close()


class TightForEdits(Tight):
    """For anything in the MANIFEST it has none."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self._path(fd).name.startswith("MANIFEST"):
            self.want_room()
        return super().pwritev(fd, buffers, offset)


async def test_the_reserve_goes_for_an_edit_without_room(tmp_path: Path) -> None:
    disk = TightForEdits(tmp_path / "q" / "queue", full=False)
    rig = await Rig(tmp_path / "q", disk=disk).open()
    await made_ready(rig)
    await rig.post.send("a@example.org")
    await rig.enrolled()
    segment = await sealed(rig)
    disk.full = True
    await soon(rig, lambda: segment.number not in rig.shard.ring.segments)
    assert not any(path.exists() for path in reserve_files(rig))
    assert len(await rig.post.claim_all()) == 1
    disk.full = False
    await rig.close()


async def test_the_reserve_gives_a_start_room_for_what_is_damaged(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("damaged@example.org")
    await rig.post.send("whole@example.org")
    segment = rig.shard.ring.current
    assert segment is not None
    root = rig.root.with_name("cut")
    copy_as_killed(rig.root, root)
    with (root / "queue" / "journal" / segment.path.name).open("r+b") as file:
        file.seek(HEADER_SIZE + 100)
        file.write(b"?")
    again = Rig(root, rig.clock)
    again.disk.fail("pwritev", "*/quarantine/*", code=errno.ENOSPC)
    await again.open()
    assert again.disk.count("unlink", "*/reserve") == 2
    assert [each.address for each in await again.post.claim_all()] == ["whole@example.org"]
    await again.close()


async def test_an_io_error_takes_no_reserve(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("a@example.org")
    rig.disk.fail("pwritev", f"{rig.spool}/*")
    segment = await sealed(rig)
    await soon(rig, lambda: segment.number not in rig.shard.ring.segments)
    assert all(path.exists() for path in reserve_files(rig))


async def test_a_reserve_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "q")
    rig.disk.fail("reserve", "*/reserve.tmp", code=errno.ENOSPC)
    await rig.open()
    await soon(rig, lambda: rig.disk.count("unlink", "*/reserve.tmp") > 0)
    await rig.clock.run_for(HOUR)
    assert not list(rig.queue.glob("reserve*"))
    assert rig.store._live.checkpointer.trouble == ""
    await rig.close()


async def test_the_reserve_gives_a_start_its_room(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("a@example.org")
    await rig.store.close()
    rig.disk.fail("pwritev", "*/MANIFEST.tmp", code=errno.ENOSPC)
    await rig.store.open()
    await rig.store.recovered()
    assert len(await rig.post.claim_all()) == 1


async def test_a_stop_takes_reserve_too(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("a@example.org")
    rig.disk.fail("pwritev", f"{rig.queue}/incoming/*", code=errno.ENOSPC)
    await rig.store.close()
    assert len(rig.clusters()) == 1
    await rig.store.open()


# ---------------------------------------------------------------- what is removed, what is left open


async def test_what_could_not_be_removed_is_tried_again(rig: Rig) -> None:
    await rig.post.send("a@example.org", content=LARGE)
    [claimed] = await rig.post.claim_all()
    rig.disk.fail("unlink", "*.msg", code=errno.EROFS)
    await rig.post.settle(delivered(), claimed)
    await soon(rig, lambda: rig.disk.count("unlink", "*.msg") == 1)
    assert len(rig.spooled()) == 1
    # The first may find the removal that fails still under way, and then only waits for its end.
    await rig.shard.deleter.settled()
    await rig.shard.deleter.settled()
    assert rig.spooled() == []


@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("open", "*/lock"),
        ("pwritev", "*/lock"),
        ("pwritev", "*/MANIFEST.tmp"),
        ("open", "*/MANIFEST"),
        ("open", "*/pin"),
    ],
)
async def test_an_opening_that_fails_leaves_nothing_open(
    tmp_path: Path, operation: str, pattern: str
) -> None:
    rig = await Rig(tmp_path / "q").open()
    await rig.post.send("a@example.org")
    rig = await rig.killed()
    await rig.store.close()
    before = os.listdir("/proc/self/fd")
    rig.disk.fail(operation, pattern)
    with pytest.raises(StoreUnavailable, match=f"the queue cannot be opened: {rig.queue}/.*: Input/output"):
        await rig.store.open()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    await rig.store.open()
    await rig.store.close()


async def test_fsck_knows_reserve_and_failed_journal_files(rig: Rig) -> None:
    await made_ready(rig)
    await rig.post.send("a@example.org")
    rig.disk.fail("datasync", "*/journal/*")
    with pytest.raises(StoreUnavailable):
        await rig.post.send("b@example.org")
    await rig.post.send("c@example.org")
    assert [segment.failed for segment in rig.shard.ring] == [True, False]
    found = survey(Disk(), rig.options)
    assert (found.records, found.problems, found.notes, found.orphans) == (2, [], [], [])
    again = await rig.killed()
    await again.evacuate()
