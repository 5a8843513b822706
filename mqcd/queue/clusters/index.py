"""The clusters in memory: a few numbers each.

Which of them a claim takes from next is in `offers`. A take reads lines from the cursor on (`reading`); what
it took and the cluster's new state go into one TAKE frame. The cluster index changes only when that frame is
durable (`advance`), so it always says what of a cluster is left on disk. Due times are brought forward
without a frame: after a crash they are those of the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.earlier_dues import Chosen, Earlier, EarlierDues, Request
from mqcd.queue.clusters.offers import Offers
from mqcd.queue.clusters.reading import Reader
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.wal.segments import Segment


class ClusterIndex:
    """All clusters of a shard. Only `reader` is used in threads."""

    def __init__(self, disk: Disk, root: Path) -> None:
        """`root`: the queue root."""
        self.reader = Reader(disk, root)
        self.clusters: dict[str, ClusterState] = {}
        self.offers = Offers(self.clusters)
        """Which of them a claim takes from next."""
        self.changed: set[str] = set()
        """Clusters whose state differs from what the MANIFEST says."""
        self.replaced_up_to = 0
        """The clusters here are those behind REPLACE frames up to this sequence."""
        self.divisions = 0
        """Clusters that batches have made in this run."""
        self._earlier = EarlierDues()
        self._notes: list[dict[str, Collection[str]]] = []
        """What `noting_divisions` gives."""

    def add(self, state: ClusterState) -> None:
        """A cluster exists now, or has a new state."""
        # A thread may have read it before due times were brought forward, or lines were expedited.
        due = self._earlier.first_due(state)
        if state.due > due:
            state = replace(state, due=due)
        self.clusters[state.name] = state
        self.offers.offer(state)

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        for state in list(self.clusters.values()):
            # The end of a grace is no delay of the schedule, and may lie further ahead.
            if state.area is Area.DEFERRED and state.left and state.due_last > latest:
                self._earlier.bring_forward(state.name, latest)
                if state.due > latest:
                    self.add(replace(state, due=latest))

    def expedite(self, name: str, chosen: Chosen, due: int, end: int) -> None:
        """What is selected of a deferred cluster's lines before `end` is due at `due` from now on."""
        state = self.clusters.get(name)
        if state is None or not state.left or state.area is not Area.DEFERRED:
            return
        self._earlier.expedite(name, Request(chosen, due, end))
        if state.due > due:
            self.add(replace(state, due=due))

    def expedite_moved(self, segment: Segment, chosen: Chosen, due: int) -> None:
        """The same for the clusters that an evacuation makes of a segment, now or when it is done."""
        if segment.retired:
            for name in self.of_segment(segment.number):
                self.expedite(name, chosen, due, self.clusters[name].size)
        else:
            self._earlier.expedite_moved(segment.number, chosen, due)

    def of_segment(self, number: int) -> set[str]:
        """The clusters that an evacuation has made of a segment."""
        return {name for name in self.clusters if f"/M{number}-" in name}

    def arrived(self, states: Iterable[ClusterState], segment: int) -> None:
        """A segment has become these clusters."""
        requests = self._earlier.pop_moved(segment)
        for state in states:
            self.add(state)
            for chosen, due in requests:
                self.expedite(state.name, chosen, due, state.size)

    def to_read(self, name: str) -> tuple[ClusterState, Earlier]:
        """What `Reader.read` has to know of a cluster at this moment."""
        state = self.clusters[name]
        return state, self._earlier.of(state)

    def left(self) -> list[tuple[str, int, int]]:
        """Name, cursor and size of each cluster that holds records."""
        return [(each.name, each.cursor, each.size) for each in self.clusters.values() if each.left]

    @contextmanager
    def noting_divisions(self) -> Generator[Mapping[str, Collection[str]]]:
        """In the block, by cluster that is replaced, the names of its successors."""
        note: dict[str, Collection[str]] = {}
        self._notes.append(note)
        try:
            yield note
        finally:
            self._notes = [each for each in self._notes if each is not note]

    def replaced(self, name: str, changed: Sequence[ClusterState], rest: Sequence[ClusterState]) -> None:
        """These clusters have taken the place of a reserved one, which ends as one that was taken from.

        What of the rest was to be due earlier still is.
        """
        for note in self._notes:
            note[name] = [state.name for state in (*changed, *rest)]
        earlier = self._earlier.pop(name)
        self.advance(replace(self.clusters[name], cursor=self.clusters[name].size, left=0, octets=0))
        for state in changed:
            self.advance(state)
        for state in rest:
            self._earlier.inherit(state, earlier)
            self.advance(state)

    def advance(self, state: ClusterState) -> None:
        """A take is durable."""
        self.add(state)
        self.changed.add(state.name)

    def committed(self, changed: Mapping[str, ClusterState], ended: Iterable[str]) -> None:
        """The MANIFEST has these states; what was taken since is still to be recorded."""
        for name in ended:
            self.offers.withdraw(name)
            self.clusters.pop(name, None)
            self._earlier.pop(name)
        for name, state in changed.items():
            if self.clusters.get(name) in (None, state):
                self.changed.discard(name)
