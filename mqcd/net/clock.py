"""The machine's clocks behind the port `Clock`: the only place that reads them."""

import time


class SystemClock:
    """Wall time from the system, timers by the monotonic clock."""

    def now(self) -> int:
        """Wall time, ms since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> int:
        """Milliseconds since some moment in the past; never goes back."""
        return time.monotonic_ns() // 1_000_000

    def micros(self) -> int:
        """Microseconds since the same moment."""
        return time.monotonic_ns() // 1000

    async def sleep(self, ms: int) -> None:
        """Return after `ms` milliseconds; for 0 and less after one turn of the loop."""
        # Only servers sleep, and every command line that asks for the time would wait 30 ms for asyncio.
        from asyncio import sleep

        await sleep(max(ms, 0) / 1000)
