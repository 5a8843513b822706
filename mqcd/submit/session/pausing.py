"""A delay that can be ended early: that of a reply which makes a bad client wait."""

from __future__ import annotations

import asyncio

from mqcd.core.ports import Clock
from mqcd.submit.policy.load import MOST_WAIT_MS, Load


class Pause:
    """One at a time."""

    __slots__ = ("_clock", "_sleep")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sleep: asyncio.Task[None] | None = None

    async def last(self, ms: int) -> None:
        """Return after `ms` milliseconds, or once `end` is called."""
        self._sleep = asyncio.get_running_loop().create_task(self._clock.sleep(ms))
        try:
            await asyncio.wait([self._sleep])
        finally:
            self.end()

    async def for_place(self, load: Load, session: object) -> bool:
        """Wait until the load has a place for a session's message; False: it has none in time."""
        load.line_up(session, self.end)
        try:
            await self.last(MOST_WAIT_MS)
        finally:
            given = load.leave(session)
        return given or load.enter(session)

    def end(self) -> None:
        """End the delay, if there is one."""
        if self._sleep is not None:
            self._sleep.cancel()
            self._sleep = None
