"""The clusters in memory, a few numbers each, and reads of their files. Which one is next is in `offers`.

A take reads lines from the cursor on; what it took and the cluster's new state go into one TAKE frame.
The cluster index changes only when that frame is durable (`advance`), so it always says what the disk says.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.core.model import BY_DUE, Area
from mqcd.disk.durable import Disk
from mqcd.queue.clusters.earlier_dues import Chosen, EarlierDues, Request
from mqcd.queue.clusters.file import read_from, split_lines
from mqcd.queue.clusters.offers import Offers
from mqcd.queue.clusters.quarantine import Stretch, extend, shared
from mqcd.queue.format import record
from mqcd.queue.format.frame import IN_SPOOL, Take
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.wal.segments import JournalEntry, Segment

_OPEN_MAX = 16
"""Clusters whose unread rest is kept in memory."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a take would move: lines with their scheduling fields, and the cluster's state after it."""

    state: ClusterState
    lines: list[tuple[bytes, record.Glance]]
    damaged: list[Stretch]
    """What is not sound: its record location ends with this take, so it must go to quarantine first."""
    bad: int
    """How many records that is, by the cluster's count: damage splits lines and joins them."""

    @property
    def finds(self) -> list[tuple[int, bytes, int]]:
        """What is damaged, each stretch with how many records it stands for."""
        return shared(self.damaged, self.bad)

    @property
    def head(self) -> Take:
        """The head of the TAKE frame."""
        return Take(self.state.name, self.state.cursor, self.state.left, self.state.octets)


@dataclass(frozen=True, slots=True)
class Found:
    """What of a cluster is selected."""

    matched: int
    later: int
    """How many of them are not due yet."""
    domains: frozenset[str]
    end: int
    """Where the last of these ends in the file."""


class ClusterIndex:
    """All clusters of a shard.

    `look` and `read` run in threads and may write only `_rest`; they read `clusters` and `_earlier`, which
    change on the event loop alone. `add` corrects what a thread has read too early.
    """

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self.clusters: dict[str, ClusterState] = {}
        self.offers = Offers(self.clusters)
        """Which of them a claim takes from next."""
        self.tenants: Set[str] = frozenset()
        """Whose new mail was last read from them."""
        self.changed: set[str] = set()
        """Clusters whose state differs from what the MANIFEST says."""
        self.replaced_up_to = 0
        """The clusters here are those behind REPLACE frames up to this sequence."""
        self.divisions = 0
        """Clusters that batches have made in this run."""
        self._rest: dict[str, tuple[int, bytes]] = {}
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

    def look(self, state: ClusterState, chosen: Chosen, now: int, most: int) -> Found:
        """Up to `most` records of a cluster that are selected. Blocks for the disk.

        Raises OSError or DecodeError when nothing of it can be read.
        """
        if chosen is None and state.left <= most:
            later = state.left if state.due_last > now else 0
            return Found(state.left, later, frozenset(), state.size)
        matched = later = 0
        domains = set()
        at = end = state.cursor
        for raw in split_lines(self._lines_of(state)):
            at += len(raw)
            if matched == most:
                break
            try:
                if chosen is not None and not chosen(record.verify(raw)):
                    continue
                glance = record.sound(raw)
            except DecodeError:
                continue
            matched += 1
            domains.add(glance.domain)
            if glance.due > now:
                later, end = later + 1, at
        return Found(matched, later, frozenset(domains), end)

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

    def read(self, name: str, room: int, now: int, most: int) -> Taken:
        """Up to `room` records from the cluster's cursor that are due at `now`, in not much more than `most`
        octets. Blocks for the disk.

        Raises OSError or DecodeError when nothing of it can be read.
        """
        state = self.clusters[name]
        data = self._lines_of(state)
        short = len(data) < state.size - state.cursor
        by_due = state.area in BY_DUE
        earlier = self._earlier.of(state)
        lines: list[tuple[bytes, record.Glance]] = []
        damaged: list[Stretch] = []
        used = octets = 0
        # The next claim shall meet the end of a file that is too short.
        next_due = state.due if short else earlier.latest
        for raw in split_lines(data):
            at = state.cursor + used
            try:
                glance = record.sound(raw)
            except DecodeError:
                extend(damaged, at, raw)
                used += len(raw)
                continue
            glance.due = earlier.due(at, raw, glance.due, now)
            taken_along = at < earlier.end
            if len(lines) >= room or used >= most or (by_due and glance.due > now and not taken_along):
                next_due = min(glance.due, now) if taken_along else glance.due
                break
            lines.append((raw, glance))
            used += len(raw)
            octets += glance.size
        rest = data[used:]
        left = _count(state, state.cursor + used, len(lines), bool(damaged), rest)
        following = replace(
            state,
            cursor=state.cursor + used,
            left=left,
            octets=max(0, state.octets - octets) if left else 0,
            due=next_due if by_due else 0,
        )
        self._keep(name, following, rest)
        return Taken(following, lines, damaged, max(0, state.left - left - len(lines)))

    def _lines_of(self, state: ClusterState) -> bytes:
        """The lines from the cursor on. Of a file that is too short the whole ones: the others stay behind
        the cursor, in case the file is put back. Raises OSError, DecodeError."""
        kept = self._rest.get(state.name)
        if kept is not None and kept[0] == state.cursor:
            return kept[1]
        data = read_from(self._disk, self._root / state.name, state.cursor, state.size)
        if len(data) < state.size - state.cursor:
            data = data[: data.rfind(b"\n") + 1]
        if not data:
            raise DecodeError("it is shorter than it should be")
        return data

    def _keep(self, name: str, state: ClusterState, rest: bytes) -> None:
        self._rest.pop(name, None)
        if rest:
            if len(self._rest) >= _OPEN_MAX:
                del self._rest[next(iter(self._rest))]
            self._rest[name] = state.cursor, rest

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


def _count(state: ClusterState, cursor: int, taken: int, damaged: bool, rest: bytes) -> int:
    """Records from `cursor` on, where `rest` stands. Only the end of the file, as the MANIFEST says it,
    ends a cluster.

    How many records a damaged stretch was, its own lines do not say; the lines behind it do.
    """
    if cursor >= state.size:
        return 0
    left = state.left - taken - damaged
    if damaged and cursor + len(rest) >= state.size:
        left = min(left, sum(1 for _ in split_lines(rest)))
    return max(1, left)


def entry_of(glance: record.Glance) -> JournalEntry:
    """A recipient on its way into the journal: its content stays in the spool."""
    return JournalEntry(
        spid=glance.spid,
        qid=glance.qid,
        area=glance.area,
        due=glance.due,
        size=glance.size,
        received=glance.received,
        content=IN_SPOOL,
        linked=glance.linked,
        domain=glance.domain,
        tenant=glance.tenant,
    )
