"""A clock that stands still until a test moves it.

Sleepers wake in the order of their times, and only when `advance` passes them, so that a test of
simulated weeks takes no time at all. `leap` moves the wall alone, as an administrator does.
"""

from __future__ import annotations

import asyncio
import heapq

START_MS = 1_800_000_000_000
"""Wall time of a new fake clock: 2027-01-15T08:00:00Z."""


class FakeClock:
    """`mqcd.core.ports.Clock`, moved by hand."""

    def __init__(self, now: int = START_MS) -> None:
        self._wall = now
        self._monotonic = 0
        self._count = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def now(self) -> int:
        """Wall time, ms."""
        return self._wall

    def monotonic(self) -> int:
        """Milliseconds that this clock was advanced by since it was made."""
        return self._monotonic

    def micros(self) -> int:
        return self._monotonic * 1000

    async def sleep(self, ms: int) -> None:
        """Return once `advance` has moved the clock by `ms`; at once (after one turn) for 0 and less."""
        if ms <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._monotonic + ms, self._count, future))
        await future

    @property
    def sleepers(self) -> int:
        """How many sleep now; those that were cancelled do not count."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def next_wake(self) -> int | None:
        """In how many ms the next sleeper wakes; None when nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] - self._monotonic if self._sleepers else None

    def advance(self, ms: int) -> None:
        """Move both times by `ms` and wake whom that passes; they run at the loop's next turn.

        Who goes back to sleep meanwhile counts from the new time: to see each wake-up of a loop, use
        `run_for`.
        """
        self._wall += ms
        self._monotonic += ms
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    async def run_for(self, ms: int, turns: int = 10) -> None:
        """Move by `ms` in steps, one to each sleeper's time; the loop gets `turns` turns after each."""
        end = self._monotonic + ms
        while True:
            for _ in range(turns):
                await asyncio.sleep(0)
            step = self.next_wake()
            if step is None or self._monotonic + step > end:
                break
            self.advance(step)
        self.advance(end - self._monotonic)
        for _ in range(turns):
            await asyncio.sleep(0)

    def leap(self, ms: int) -> None:
        """Move the wall alone, forward or back; nobody wakes."""
        self._wall += ms


async def turns(count: int = 30) -> None:
    """Let the loop turn; time stands still."""
    for _ in range(count):
        await asyncio.sleep(0)
