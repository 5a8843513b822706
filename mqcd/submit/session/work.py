"""The one task of a session, and the delay in it.

| call | by | the task | its delay |
|---|---|---|---|
| `start` | the session, without a task | begins | |
| `delay`, `for_place` | the task | waits | begins |
| `hurry` | the session | goes on | ends early |
| `cancel` | the session | is cancelled | |
| | | ends: `ended` is called, without a task | |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mqcd.core.ports import Clock
from mqcd.submit.policy.load import MOST_WAIT_MS, Load


class Work:
    """At most one task at a time."""

    __slots__ = ("_begun", "_clock", "_sleep", "cancelled", "task")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.task: asyncio.Task[None] | None = None
        """The one under way; only this class sets it."""
        self._begun = False
        """The task has taken its first step."""
        self.cancelled = False
        """`cancel` was called for it; a task's own count, `cancelling`, has also what it did to itself."""
        self._sleep: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]) -> None:
        """Begin the task. `ended` is called with what ended it, None = it was done; it may start the next."""
        self._begun = self.cancelled = False
        self.task = asyncio.get_running_loop().create_task(self._run(work, ended))

    def cancel(self) -> None:
        """Cancel the task, if there is one; before its first step asyncio would end it without `ended`."""
        if self.task is not None and self._begun:
            self.task.cancel()
        self.cancelled = True

    async def _run(
        self, work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
    ) -> None:
        error: BaseException | None = None
        self._begun = True
        try:
            if self.cancelled:
                work.throw(asyncio.CancelledError())
            await work
        except Exception as fault:
            error = fault
        except BaseException as stop:
            error = stop
            raise
        finally:
            self.task = None
            ended(error)

    async def delay(self, ms: int) -> None:
        """Return after `ms` milliseconds, or once `hurry` is called."""
        self._sleep = asyncio.get_running_loop().create_task(self._clock.sleep(ms))
        try:
            await asyncio.wait([self._sleep])
        finally:
            self.hurry()

    async def for_place(self, load: Load, session: object) -> bool:
        """Wait until the load has a place for a session's message; False: it has none in time."""
        load.line_up(session, self.hurry)
        try:
            await self.delay(MOST_WAIT_MS)
        finally:
            given = load.leave(session)
        return given or load.enter(session)

    def hurry(self) -> None:
        """End the delay, if there is one."""
        if self._sleep is not None:
            self._sleep.cancel()
            self._sleep = None
