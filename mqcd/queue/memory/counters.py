"""What the areas hold, counted as it changes, so that no gauge needs a scan.

Counts and octets are exact. The oldest time of acceptance is exact for entries and for untouched
clusters; for one that has been taken from or divided it may be too old until that ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from mqcd.core.model import Area, AreaStats
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.wal.segments import JournalEntry

_SLACK = 1000


class AreaCounter:
    """What one area holds."""

    __slots__ = ("_counts", "_heap", "octets", "recipients")

    def __init__(self) -> None:
        self.recipients = 0
        self.octets = 0
        # Entries by time of acceptance, and those times; an entry that has gone is held by neither.
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, entry: JournalEntry) -> None:
        """Count an entry in."""
        self.recipients += 1
        self.octets += entry.size
        received, counts = entry.received, self._counts
        count = counts.get(received, 0)
        counts[received] = count + 1
        if not count:
            heappush(self._heap, received)
            if len(self._heap) > 2 * len(counts) + _SLACK:
                self._heap = sorted(counts)

    def remove(self, entry: JournalEntry) -> None:
        """Count an entry out."""
        self.recipients -= 1
        self.octets -= entry.size
        self.forget(entry)

    def forget(self, entry: JournalEntry) -> None:
        """An entry that is counted elsewhere is not the oldest here."""
        received, counts = entry.received, self._counts
        count = counts[received] - 1
        if count:
            counts[received] = count
        else:
            del counts[received]

    def received(self) -> int | None:
        """When the oldest of the entries was accepted, ms."""
        heap = self._heap
        while heap and heap[0] not in self._counts:
            heappop(heap)
        return heap[0] if heap else None


class Accounts:
    """Recipients and octets by area."""

    def __init__(self) -> None:
        self._areas = {area: AreaCounter() for area in Area}

    def add_entry(self, entry: JournalEntry) -> None:
        """An entry is new in its area."""
        self._areas[entry.area].add(entry)

    def remove_entry(self, area: Area, entry: JournalEntry) -> None:
        """An entry has left `area`."""
        self._areas[area].remove(entry)

    def forget(self, entry: JournalEntry) -> None:
        """An entry has gone that `take` has counted out."""
        self._areas[entry.area].forget(entry)

    def add_cluster(self, cluster: ClusterState) -> None:
        """Records lie in a cluster."""
        tally = self._areas[cluster.area]
        tally.recipients += cluster.left
        tally.octets += cluster.octets

    def take(self, area: Area, records: int, octets: int) -> None:
        """So many records have left a cluster, or the journal all at once."""
        tally = self._areas[area]
        tally.recipients -= records
        tally.octets -= octets

    def stats(self, clusters: Iterable[ClusterState]) -> dict[Area, AreaStats]:
        """All areas."""
        oldest = {area: tally.received() for area, tally in self._areas.items()}
        for cluster in clusters:
            known = oldest[cluster.area]
            if cluster.left and (known is None or cluster.received < known):
                oldest[cluster.area] = cluster.received
        return {
            area: AreaStats(recipients=tally.recipients, octets=tally.octets, oldest=oldest[area])
            for area, tally in self._areas.items()
        }
