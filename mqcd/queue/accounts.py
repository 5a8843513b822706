"""What the areas hold, counted as it changes, so that no gauge needs a scan.

Counts and octets are exact. The oldest time of acceptance is exact for residents and for untouched
clusters; for a cluster that has been taken from it may be too old until the cluster ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from mqcd.core.model import Area, AreaStats
from mqcd.queue.manifest import ClusterState
from mqcd.queue.ring import Resident, State

_SLACK = 1000


class Tally:
    """What one area holds."""

    __slots__ = ("_area", "_count", "_heap", "_run", "octets", "recipients", "residents")

    def __init__(self, area: Area) -> None:
        self._area = area
        self.recipients = 0
        self.octets = 0
        self.residents = 0
        """Recipients that are residents."""
        # Nearly all come in the order of acceptance: the heap is for the others.
        self._run: deque[Resident] = deque()
        self._heap: list[tuple[int, int, Resident]] = []
        self._count = 0

    def add(self, resident: Resident) -> None:
        """Count a resident in."""
        self.recipients += 1
        self.octets += resident.size
        self.residents += 1
        run, heap = self._run, self._heap
        if not run or resident.received >= run[-1].received:
            run.append(resident)
        else:
            self._count += 1
            heappush(heap, (resident.received, self._count, resident))
        if len(run) + len(heap) > 2 * self.residents + _SLACK:
            self._run = deque(each for each in run if self._lives(each))
            heap[:] = [entry for entry in heap if self._lives(entry[2])]
            heapify(heap)

    def remove(self, size: int) -> None:
        """Count a resident out."""
        self.recipients -= 1
        self.octets -= size
        self.residents -= 1

    def received(self) -> int | None:
        """When the oldest of the residents was accepted, ms."""
        run, heap = self._run, self._heap
        while run and not self._lives(run[0]):
            run.popleft()
        while heap and not self._lives(heap[0][2]):
            heappop(heap)
        times = [run[0].received] if run else []
        if heap:
            times.append(heap[0][0])
        return min(times, default=None)

    def _lives(self, resident: Resident) -> bool:
        return resident.area is self._area and resident.state is not State.GONE


class Accounts:
    """Recipients and octets by area."""

    def __init__(self) -> None:
        self._tallies = {area: Tally(area) for area in Area}

    def add_resident(self, resident: Resident) -> None:
        """A resident is new in its area."""
        self._tallies[resident.area].add(resident)

    def remove_resident(self, area: Area, size: int) -> None:
        """A resident has left `area`."""
        self._tallies[area].remove(size)

    def add_cluster(self, cluster: ClusterState) -> None:
        """Records lie in a cluster."""
        tally = self._tallies[cluster.area]
        tally.recipients += cluster.left
        tally.octets += cluster.octets

    def take(self, area: Area, records: int, octets: int) -> None:
        """Records have left a cluster."""
        tally = self._tallies[area]
        tally.recipients -= records
        tally.octets -= octets

    def stats(self, clusters: Iterable[ClusterState]) -> dict[Area, AreaStats]:
        """All areas."""
        oldest = {area: tally.received() for area, tally in self._tallies.items()}
        for cluster in clusters:
            known = oldest[cluster.area]
            if cluster.left and (known is None or cluster.received < known):
                oldest[cluster.area] = cluster.received
        return {
            area: AreaStats(recipients=tally.recipients, octets=tally.octets, oldest=oldest[area])
            for area, tally in self._tallies.items()
        }
