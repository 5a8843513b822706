"""What a store must offer to be put through the contract: a factory, and how it can be restarted.

A new store joins by one line in HARNESSES; every test then runs on it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import ClassVar, Protocol

from mqcd.core.ports import QueueStore
from mqcd.core.schedule import RetrySchedule
from mqcd.stores.memory import MemoryStore
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver

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
    """One store under test, with the clock and the observer that it was given."""

    restarts: ClassVar[tuple[Restart, ...]]
    """The ways in which it can be restarted without losing anything."""
    clock: FakeClock
    observer: RecordingObserver

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
        self._store = MemoryStore(self.clock, self.observer, schedule=SCHEDULE)

    async def start(self) -> QueueStore:
        await self._store.open()
        return self._store

    async def restart(self, how: Restart) -> QueueStore:
        await self._store.close()
        return await self.start()

    async def stop(self) -> None:
        await self._store.close()


HARNESSES: Mapping[str, tuple[Callable[[Path], Harness], tuple[Restart, ...]]] = {
    "memory": (MemoryHarness, MemoryHarness.restarts),
}
"""Every store: how to make its harness, given an empty directory, and its restarts."""
