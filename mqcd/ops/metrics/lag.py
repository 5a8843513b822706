"""The lag of the event loop: the first sign of a blocking call."""

from __future__ import annotations

from collections import deque

from mqcd.core.ports import Clock

STEP_MS = 500
KEPT = 20
"""Measurements that count: those of the last ten seconds."""


class LoopLag:
    """Measures the lag while `run` runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._measured: deque[int] = deque(maxlen=KEPT)

    def worst_ms(self) -> int:
        """The worst lag of the last ten seconds, ms; 0 before the first measurement."""
        return max(self._measured, default=0)

    async def run(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(STEP_MS)
            self._measured.append(max(self._clock.monotonic() - before - STEP_MS, 0))
