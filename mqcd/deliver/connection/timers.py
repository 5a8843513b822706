"""Time limits without a timer for each command: one sweep looks at the deadlines of all connections.

A deadline is noticed up to one tick late. Nothing ticks while nothing is guarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from mqcd.core.ports import Clock


class Guarded(Protocol):
    """Something with a time limit."""

    deadline: int
    """Monotonic ms; 0 = none now."""

    def expire(self) -> None:
        """Called once per deadline, when it has passed."""


class Sweep:
    """Watches deadlines while there are any to watch."""

    def __init__(self, clock: Clock, tick_ms: int) -> None:
        self._clock = clock
        self.tick_ms = tick_ms
        self._guarded: set[Guarded] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, guarded: Guarded) -> None:
        """Watch its deadline from now on."""
        self._guarded.add(guarded)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def discard(self, guarded: Guarded) -> None:
        self._guarded.discard(guarded)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._guarded:
            await self._clock.sleep(self.tick_ms)
            now = self._clock.monotonic()
            for guarded in [each for each in self._guarded if 0 < each.deadline <= now]:
                guarded.deadline = 0
                guarded.expire()


class Alarm:
    """Calls back once at the earliest of the times it was set to; it may call early, never late."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._at = 0
        self._task: asyncio.Task[None] | None = None

    def set(self, ms: int) -> None:
        """Call back in `ms` ms at the latest."""
        at = self._clock.monotonic() + ms
        if self._task is not None:
            if self._at <= at:
                return
            self._task.cancel()
        self._at = at
        self._task = asyncio.get_running_loop().create_task(self._run(ms))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, ms: int) -> None:
        await self._clock.sleep(ms)
        self._task = None
        self._callback()
