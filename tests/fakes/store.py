"""A queue that lives in memory: what most tests build on, held to the contract of the real ones.

With it a transition is committed, and its observer called, before the method that makes it returns; only
content that arrives in chunks makes it wait. Closing and opening the same object again is a restart.
"""

from __future__ import annotations

from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.stored_queue import StoredQueue

_HOUR = 3_600_000
_SCHEDULE = RetrySchedule(
    delays=(_HOUR // 4, _HOUR // 2, 2 * _HOUR, 4 * _HOUR), maxtime=72 * _HOUR, maxtime_reports=24 * _HOUR
)


class MemoryStore(StoredQueue):
    """`core.ports.QueueStore` in memory. `max_octets` bounds the content it holds; 0 = no bound."""

    def __init__(
        self,
        clock: Clock,
        observer: Observer,
        *,
        schedule: RetrySchedule = _SCHEDULE,
        max_octets: int = 0,
        events: EventFiles | None = None,
    ) -> None:
        super().__init__(MappingStore(max_octets=max_octets), clock, observer, schedule, events)

    async def open(self) -> None:
        """Open, and recovered at once."""
        await super().open()
        await self.recovered()
