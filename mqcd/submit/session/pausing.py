"""A delay that can be ended early: that of a reply which makes a bad client wait."""

from __future__ import annotations

import asyncio

from mqcd.core.ports import Clock


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

    def end(self) -> None:
        """End the delay, if there is one."""
        if self._sleep is not None:
            self._sleep.cancel()
            self._sleep = None
