"""Running figures of an area, so that none needs a scan."""

from __future__ import annotations

import heapq

from mqcd.core.model import AreaStats, Recipient

Key = tuple[int, int]


class Tally:
    """The running figures of one area."""

    def __init__(self) -> None:
        self._members: set[Key] = set()
        self._octets = 0
        self._oldest: list[tuple[int, Key]] = []
        """A heap by time of acceptance; it may also name records that have left."""

    def add(self, record: Recipient) -> None:
        """Add `record`."""
        self._members.add(record.key)
        self._octets += record.size
        heapq.heappush(self._oldest, (record.envelope.received, record.key))

    def remove(self, record: Recipient) -> None:
        """Remove `record`; compacts the heap, which an old remaining record would let grow without end."""
        self._members.discard(record.key)
        self._octets -= record.size
        if len(self._oldest) > 2 * len(self._members) + 64:
            self._oldest = [entry for entry in set(self._oldest) if entry[1] in self._members]
            heapq.heapify(self._oldest)

    def stats(self) -> AreaStats:
        """The figures at this moment."""
        while self._oldest and self._oldest[0][1] not in self._members:
            heapq.heappop(self._oldest)
        oldest = self._oldest[0][0] if self._oldest else None
        return AreaStats(recipients=len(self._members), octets=self._octets, oldest=oldest)
