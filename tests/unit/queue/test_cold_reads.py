"""What the kernel does not have in memory is read in a thread: a slow disk never holds up the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mqcd.config.settings import JournalSettings
from mqcd.core.model import Action
from mqcd.core.selecting.selection import Selection
from mqcd.queue.checkpoint.freezing import Freezing
from mqcd.queue.wal.segments import SegmentState
from tests.contract.harness import HOUR, MINUTE
from tests.contract.mail import batch, carry_out
from tests.fakes.disk import FaultyDisk
from tests.unit.queue.support import Rig

ROOMY = JournalSettings(segmentsize=16 << 20, segments=8, seal_age=HOUR)


class ColdDisk(FaultyDisk):
    """Has nothing in memory, notes reads on the loop, and can make readers of segments wait."""

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread = threading.get_ident()
        self.on_loop: list[Path] = []
        self.may_read = threading.Event()
        self.may_read.set()
        self.reading = threading.Event()

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        if threading.get_ident() == self.loop_thread:
            self.on_loop.append(self._path(fd))
        elif "journal" in self._path(fd).parts:
            self.reading.set()
            assert self.may_read.wait(30)
        return super().pread(fd, octets, offset)


async def cold_rig(root: Path) -> tuple[Rig, ColdDisk]:
    """A store on such a disk, with entries of whose records nothing is in memory."""
    disk = ColdDisk()
    rig = await Rig(root / "q", disk=disk, journal=ROOMY).open()
    for name in "abc":
        await rig.post.defer_new(f"{name}@example.org", rig.clock.now() + MINUTE)
    rig.clock.advance(MINUTE)
    disk.on_loop.clear()
    return rig, disk


async def until(event: threading.Event) -> None:
    """Wait for a thread without holding up the loop."""
    assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 30)


async def claim(rig: Rig) -> None:
    assert len(await rig.post.claim_all()) == 3


async def retry(rig: Rig) -> None:
    order = batch(Action.RETRY, rig.post)
    assert await carry_out(rig.store, order, Selection(recipient="b@*")) == (1, 0)


async def read_content(rig: Rig) -> None:
    [recipient, *_] = await rig.post.claim_all()
    content = await rig.store.content(recipient)
    assert len(await content.read(1 << 20)) == recipient.size
    content.close()


async def carry(rig: Rig) -> None:
    claimed = await rig.post.claim_all()
    for entry in rig.shard.entries.active.values():
        entry.raw = b""
    segment = await rig.seal()
    while segment.state is not SegmentState.EXPORTED:
        await asyncio.sleep(0)
    # The helper is no process here: what it has read so far does not count.
    assert isinstance(rig.disk, ColdDisk)
    rig.disk.on_loop.clear()
    await Freezing(rig.shard, rig.store._live.writer.carries, segment).freeze()
    assert not segment.entries
    await rig.store.park(claimed, 0)


@pytest.mark.parametrize("request_", [claim, retry, read_content, carry])
async def test_no_request_reads_a_cold_disk_on_the_loop(
    tmp_path: Path, request_: Callable[[Rig], Awaitable[None]]
) -> None:
    rig, disk = await cold_rig(tmp_path)
    await request_(rig)
    assert disk.on_loop == []
    await rig.close()


async def test_a_claim_cancelled_while_it_reads_gives_all_back(tmp_path: Path) -> None:
    rig, disk = await cold_rig(tmp_path)
    disk.may_read.clear()
    claiming = asyncio.create_task(rig.post.claim_all())
    await until(disk.reading)
    claiming.cancel()
    disk.may_read.set()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    assert len(await rig.post.claim_all()) == 3
    await rig.close()


async def test_an_evacuation_carries_what_a_claim_reads(tmp_path: Path) -> None:
    rig, disk = await cold_rig(tmp_path)
    disk.may_read.clear()
    disk.reading.clear()
    claiming = asyncio.create_task(rig.post.claim_all())
    await until(disk.reading)
    evacuating = asyncio.create_task(rig.evacuate())
    await asyncio.sleep(0)
    disk.may_read.set()
    claimed = list(await claiming)
    await evacuating
    claimed += await rig.post.claim_all()
    assert sorted(each.address for each in claimed) == [f"{name}@example.org" for name in "abc"]
    await rig.store.park(claimed, 0)
    assert len(rig.listed()) == 3
    await rig.close()


async def test_an_entry_evacuated_while_its_age_is_asked_stays_once(tmp_path: Path) -> None:
    rig, disk = await cold_rig(tmp_path)
    now = rig.clock.now()
    # They are passed over, and the suspension is renewed: only then does a claim read old ones.
    assert await rig.store.claim(10, now, {"example.org": now + MINUTE}) == []
    rig.clock.advance(MINUTE)
    now = rig.clock.now()
    assert await rig.store.claim(10, now, {"example.org": now + MINUTE}, lambda _: False, 0) == []
    rig.clock.advance(MINUTE)
    now = rig.clock.now()
    skip = {"example.org": now + HOUR}
    assert await rig.store.claim(10, now, skip, lambda _: False, now) == []
    disk.may_read.clear()
    disk.reading.clear()
    rig.clock.advance(HOUR)
    now = rig.clock.now()
    skip = {"example.org": now + HOUR}
    asking = asyncio.create_task(rig.store.claim(10, now, skip, lambda _: True, now))
    await until(disk.reading)
    for entry in next(iter(rig.shard.ring)).entries.values():
        assert entry.resting
    evacuating = asyncio.create_task(rig.evacuate())
    disk.may_read.set()
    claimed = list(await asking)
    await evacuating
    claimed += await rig.store.claim(10, now + HOUR, {})
    assert sorted(each.address for each in claimed) == [f"{name}@example.org" for name in "abc"]
    await rig.close()
