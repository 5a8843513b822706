"""What a store must offer to be put through the contract: a factory, and how it can be restarted.

A new store joins by one line in HARNESSES; every test then runs on it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from mqcd.config.settings import JournalSettings, QueueSettings, SpoolSettings
from mqcd.core.ports import QueueStore
from mqcd.core.schedule import RetrySchedule
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.ops.fanout import Fanout
from mqcd.ops.metrics.meters import Meters
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.store import ClusterStore
from mqcd.queue.workers import Workers
from tests.fakes.clock import FakeClock
from tests.fakes.killed import copy_as_killed
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.fakes.workers import InlineScanWorkers

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
SCHEDULE = RetrySchedule(
    delays=(15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR), maxtime=72 * HOUR, maxtime_reports=24 * HOUR
)


class Restart(Enum):
    """How a store comes to be opened again."""

    REOPEN = "reopen"
    """It was closed in order."""
    KILL = "kill"
    """The process that had it open is gone, as after kill -9."""


class Harness(Protocol):
    """One store under test, with the clock and the observers that it was given."""

    restarts: ClassVar[tuple[Restart, ...]]
    """The ways in which it can be restarted without losing anything."""
    clock: FakeClock
    observer: RecordingObserver
    meters: Meters

    async def start(self) -> QueueStore:
        """An empty store, open."""

    async def restart(self, how: Restart) -> QueueStore:
        """The same queue, open again."""

    async def stop(self) -> None:
        """Close what is open."""


class MemoryHarness:
    """The memory store: closing and opening it again is the only restart that it survives."""

    restarts: ClassVar[tuple[Restart, ...]] = (Restart.REOPEN,)

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.meters = Meters()
        self._store = MemoryStore(self.clock, Fanout(self.observer, self.meters), schedule=SCHEDULE)

    async def start(self) -> QueueStore:
        await self._store.open()
        await self._store.recovered()
        return self._store

    async def restart(self, how: Restart) -> QueueStore:
        await self._store.close()
        return await self.start()

    async def stop(self) -> None:
        await self._store.close()


class ClusterHarness:
    """The clustered-file queue. A kill is a copy of its files, as the moment left them, opened anew."""

    restarts: ClassVar[tuple[Restart, ...]] = (Restart.REOPEN, Restart.KILL)

    def __init__(self, path: Path, *, hardlinks: bool = False, scan_processes: bool = False) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.meters = Meters()
        self._hardlinks = hardlinks
        self._workers = Workers() if scan_processes else InlineScanWorkers(Disk())
        self._path = path
        self._copies = 0
        self._open: list[ClusterStore] = []

    async def start(self) -> QueueStore:
        options = cluster_options(self._path / f"run{self._copies}", hardlinks=self._hardlinks)
        observer = Fanout(self.observer, self.meters)
        store = ClusterStore(options, self.clock, observer, workers=self._workers)
        await store.open()
        await store.recovered()
        self._open.append(store)
        return store

    async def restart(self, how: Restart) -> QueueStore:
        if how is Restart.REOPEN:
            await self._open.pop().close()
        else:
            old = self._path / f"run{self._copies}"
            self._copies += 1
            copy_as_killed(old, self._path / f"run{self._copies}")
        return await self.start()

    async def stop(self) -> None:
        while self._open:
            await self._open.pop().close()


def cluster_options(root: Path, *, hardlinks: bool = False) -> Options:
    """A small journal below `root`."""
    settings = QueueSettings(
        rootpath=root / "queue",
        spool=SpoolSettings(rootpath=root / "spool", hardlinks=hardlinks),
        journal=JournalSettings(segmentsize=1 << 20, segments=8),
    )
    return Options(settings=settings, schedule=SCHEDULE, source=Source("test", 0), events=root / "events")


HARNESSES: Mapping[str, tuple[Callable[[Path], Harness], tuple[Restart, ...]]] = {
    "memory": (MemoryHarness, MemoryHarness.restarts),
    "cluster": (ClusterHarness, ClusterHarness.restarts),
    "cluster-links": (partial(ClusterHarness, hardlinks=True), (Restart.KILL,)),
    "cluster-scans": (partial(ClusterHarness, scan_processes=True), ()),
}
"""Every store: how to make its harness, given an empty directory, and its restarts."""
ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "cluster-links": ("test_content", "test_enqueue"),
    "cluster-scans": ("test_look",),
}
"""Where a store differs from another one in little: the modules that see it, beside restarts and ledger."""
