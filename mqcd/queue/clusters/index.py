"""The clusters in memory: a few numbers each, and what holds for them (see `ClusterIndex`).

A take reads lines from a cluster's cursor on (`reading`), of the cluster that `offers` names. What it took
and the cluster's new state go into one TAKE frame, and the index changes when that frame is durable. Likewise
a REPLACE frame puts other clusters in the place of one, and an evacuation's edit adds clusters. Due times are
brought forward without a frame: after a crash they are those of the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.offers import Offers
from mqcd.queue.clusters.reading import Reader
from mqcd.queue.manifest.state import ClusterState


class ClusterIndex:
    """All clusters of a shard. Changed on the event loop; only `reader` is used in threads.

    What holds after each call, by field. All are changed here alone, but for `offers` (claims and batches),
    `numbered` (batches) and `replaced_up_to` (a start):

    | field | invariant |
    |---|---|
    | `clusters` | all that the MANIFEST lists or a durable frame has made, until an edit ends them |
    | cursor and counts in it | those of the last durable TAKE, REPLACE or edit: what is left on disk |
    | due time in it | no record that is left is due before it; it may be earlier than the record line says |
    | `offers` | offers each that has records left, unless it is reserved or set aside |
    | `unrecorded` | names each whose cursor and counts are not the MANIFEST's, or which that does not list |
    | `replaced_up_to` | REPLACE frames up to this sequence have been followed here, and no other |
    | `numbered` | file numbers below it are taken: no two batches of a run make a cluster of one name |
    | `_latest` | by name: a time that no record is due after, whatever its line says; a crash forgets it |
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        """`root`: the queue root."""
        self.reader = Reader(disk, root)
        self.clusters: dict[str, ClusterState] = {}
        self.offers = Offers(self.clusters)
        self.unrecorded: set[str] = set()
        self.replaced_up_to = 0
        self.numbered = 0
        self._latest: dict[str, int] = {}

    # ------------------------------------------------------------ what frames and edits have changed

    def add(self, state: ClusterState) -> None:
        """A cluster is as the MANIFEST says; or has another due time than before, and else the same state."""
        # A thread may have read it before due times were brought forward. Where none was, the default leaves
        # the due time as it is.
        if state.due > (latest := self._latest.get(state.name, state.due)):
            state = replace(state, due=latest)
        self.clusters[state.name] = state
        self.offers.offer(state)

    def advance(self, state: ClusterState) -> None:
        """A cluster is as a durable frame says."""
        self.add(state)
        self.unrecorded.add(state.name)

    def replaced(
        self, name: str, changed: Sequence[ClusterState], rest: Sequence[ClusterState], up_to: int
    ) -> None:
        """A REPLACE frame is durable, and all before it, `up_to` a sequence: these clusters have taken the
        place of a reserved one, which ends as one that was taken from.

        What of the rest was brought forward still is.
        """
        latest = self._latest.pop(name, None)
        self.advance(replace(self.clusters[name], cursor=self.clusters[name].size, left=0, octets=0))
        for state in changed:
            self.advance(state)
        for state in rest:
            if latest is not None:
                self._latest[state.name] = latest
            self.advance(state)
        self.replaced_up_to = up_to

    def to_record(self) -> dict[str, ClusterState]:
        """What the next edit of an evacuation has to record, others do not: states with something left, and
        clusters that end."""
        return {name: self.clusters[name] for name in self.unrecorded}

    def recorded(self, states: Mapping[str, ClusterState]) -> None:
        """The MANIFEST has these states of `to_record`; what frames have changed since is still to come."""
        for name, state in states.items():
            if not state.left:
                del self.clusters[name]
                self._latest.pop(name, None)
            if self.clusters.get(name) in (None, state):
                self.unrecorded.discard(name)

    # ------------------------------------------------------------ due times

    def bring_forward(self, latest: int, states: Iterable[ClusterState]) -> None:
        """What is due later than `latest` in these clusters is due then."""
        for state in tuple(states):
            # The end of a grace is no delay of the schedule, and may lie further ahead.
            if state.area is Area.DEFERRED and state.left and state.due_last > latest:
                self._latest[state.name] = min(latest, self._latest.get(state.name, latest))
                if state.due > latest:
                    self.add(state)

    # ------------------------------------------------------------ what is asked

    def to_read(self, name: str) -> tuple[ClusterState, int]:
        """What `Reader.read` has to know of a cluster at this moment."""
        state = self.clusters[name]
        # No line says a later time than `due_last`: as a default it brings nothing forward.
        return state, self._latest.get(name, state.due_last)

    def left(self) -> list[tuple[str, int, int]]:
        """Name, cursor and size of each cluster that holds records."""
        return [(each.name, each.cursor, each.size) for each in self.clusters.values() if each.left]
