"""What the areas hold, counted as it changes, so that no gauge needs a scan.

Counts and octets are exact. The oldest time of acceptance is exact for residents and for untouched
clusters; for a cluster that has been taken from it may be too old until the cluster ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from mqcd.core.model import Area, AreaStats
from mqcd.queue.manifest import ClusterState
from mqcd.queue.ring import Resident, State

_SLACK = 1000


class Oldest:
    """The earliest acceptance among the residents of one area."""

    def __init__(self, area: Area) -> None:
        self._area = area
        self._heap: list[tuple[int, int, Resident]] = []
        self._count = 0
        self.size = 0
        """Residents in the area."""

    def add(self, resident: Resident) -> None:
        """Count a resident in."""
        self.size += 1
        self._count += 1
        heap = self._heap
        heappush(heap, (resident.received, self._count, resident))
        if len(heap) > 2 * self.size + _SLACK:
            heap[:] = [entry for entry in heap if self._lives(entry[2])]
            heapify(heap)

    def received(self) -> int | None:
        """When the oldest was accepted, ms."""
        heap = self._heap
        while heap and not self._lives(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else None

    def _lives(self, resident: Resident) -> bool:
        return resident.area is self._area and resident.state is not State.GONE


class Accounts:
    """Recipients and octets by area."""

    def __init__(self) -> None:
        self._recipients = dict.fromkeys(Area, 0)
        self._octets = dict.fromkeys(Area, 0)
        self._oldest = {area: Oldest(area) for area in Area}

    def add_resident(self, resident: Resident) -> None:
        """A resident is new in its area."""
        area = resident.area
        self._recipients[area] += 1
        self._octets[area] += resident.size
        self._oldest[area].add(resident)

    def remove_resident(self, area: Area, size: int) -> None:
        """A resident has left `area`."""
        self._recipients[area] -= 1
        self._octets[area] -= size
        self._oldest[area].size -= 1

    def add_cluster(self, cluster: ClusterState) -> None:
        """Records lie in a cluster."""
        self._recipients[cluster.area] += cluster.left
        self._octets[cluster.area] += cluster.octets

    def take(self, area: Area, records: int, octets: int) -> None:
        """Records have left a cluster."""
        self._recipients[area] -= records
        self._octets[area] -= octets

    def stats(self, clusters: Iterable[ClusterState]) -> dict[Area, AreaStats]:
        """All areas."""
        oldest = {area: tracker.received() for area, tracker in self._oldest.items()}
        for cluster in clusters:
            known = oldest[cluster.area]
            if cluster.left and (known is None or cluster.received < known):
                oldest[cluster.area] = cluster.received
        return {
            area: AreaStats(recipients=self._recipients[area], octets=self._octets[area], oldest=oldest[area])
            for area in Area
        }
