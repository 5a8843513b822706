"""What each area of a queue in memory holds, kept up with every change. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from mqcd.core.model import Area, AreaStats, Recipient


class _Area:
    """One area."""

    def __init__(self) -> None:
        self.recipients = 0
        self.octets = 0
        self._times: dict[int, int] = {}
        """How many recipients were accepted at each time, ms."""
        self._oldest: list[int] = []
        """The times, as a heap; it may hold times that no recipient has any more."""

    def count(self, recipient: Recipient, by: int) -> None:
        self.recipients += by
        self.octets += by * recipient.size
        received = recipient.envelope.received
        there = self._times.get(received, 0) + by
        if there:
            self._times[received] = there
        else:
            del self._times[received]
        if by > 0 and there == by:
            heapq.heappush(self._oldest, received)

    def stats(self) -> AreaStats:
        while self._oldest and self._oldest[0] not in self._times:
            heapq.heappop(self._oldest)
        oldest = self._oldest[0] if self._oldest else None
        return AreaStats(recipients=self.recipients, octets=self.octets, oldest=oldest)


class Figures:
    """Of one queue."""

    def __init__(self) -> None:
        self._areas = {area: _Area() for area in Area}

    def replace(self, old: Recipient | None, new: Recipient | None) -> None:
        """A recipient has come, has changed, or has left."""
        if old is not None:
            self._areas[old.area].count(old, -1)
        if new is not None:
            self._areas[new.area].count(new, 1)

    def stats(self) -> Mapping[Area, AreaStats]:
        """See `core.ports.QueueStore.stats`."""
        return {area: held.stats() for area, held in self._areas.items()}
