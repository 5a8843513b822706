"""Edits to the MANIFEST: one at a time, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from mqcd.queue.manifest.state import Edit
from mqcd.queue.store import ClusterStore
from tests.fakes.clock import FakeClock, turns
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import LocalWorkers
from tests.unit.queue.support import options


class SlowDisk(FaultyDisk):
    """Syncs the MANIFEST only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.syncing = threading.Semaphore(0)
        self.at_once = 0
        self.most_at_once = 0

    def datasync(self, fd: int) -> None:
        """Wait for leave, and count who is here with us."""
        if not self.may.is_set():
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.syncing.release()
            self.may.wait()
            self.at_once -= 1
        super().datasync(fd)


async def test_a_cancelled_edit_waits_for_its_write(tmp_path: Path) -> None:
    disk = SlowDisk()
    store = ClusterStore(options(tmp_path), FakeClock(), RecordingObserver(), disk, LocalWorkers(disk))
    await store.open()
    await store.recovered()
    try:
        editing = store._live.shard.editing
        disk.may.clear()
        first = asyncio.ensure_future(editing.commit(Edit()))
        assert await asyncio.to_thread(disk.syncing.acquire, timeout=60)
        first.cancel()
        second = asyncio.ensure_future(editing.commit(Edit()))
        await turns(20)
        assert not first.done()
        disk.may.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        assert disk.most_at_once == 1
    finally:
        disk.may.set()
        await store.close()
