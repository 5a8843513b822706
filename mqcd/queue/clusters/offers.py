"""Chooses the cluster that a claim loads from next. Pure, and used on the event loop alone.

| area | order | found by |
|---|---|---|
| incoming | by age, tenants in turn | `first` |
| bounces | by age | the same |
| deferred | by the due time of the first record, tenants in turn | `first_due`, `next_due` |
| removed | by the due time of the first record | the same |
| held, with a due time | the same, and by age for a domain | the same, and `first_held` |
| held, without one | | nothing: an operator has to ask for it |

The age of a cluster is that of its oldest mail, `ClusterState.received`. A cluster is offered while it holds
records, but for two cases:

| not offered | from | until |
|---|---|---|
| reserved: it is being replaced | `reserve` | `give_back` |
| set aside: it cannot be read | `set_aside` | `bring_back`; without it until the next start |

`offer` changes neither, nor does the end of the other.

A cluster has the same homes all its life: area, queue and tenant never change, nor does whether a held one
has a due time (`Holding.queue_of` keeps both kinds apart). So `offer` withdraws from the homes of the new
state. What changes is what is left, the cursor and the due time; `_DueClusters` passes over an item of an
earlier due time, and the same item may stand there twice. A tenant here is `ClusterState.tenant`: those with
little share the turns of "".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import takewhile

from mqcd.core.model import BY_DUE, Area
from mqcd.core.queueing.turns import DueByTenant
from mqcd.queue.clusters.file import queue_of
from mqcd.queue.manifest.state import ClusterState


class Offers:
    """The offered clusters of a shard."""

    def __init__(self, clusters: Mapping[str, ClusterState]) -> None:
        """`clusters`: all of them, offered or not; kept by `ClusterIndex`."""
        self._clusters = clusters
        self._queues = {area: _Lines(clusters, _tenant) for area in Area if area not in BY_DUE}
        self._held = _Lines(clusters, lambda state: queue_of(state.name))
        self._due = {area: _ByDue(partial(_DueClusters, clusters)) for area in BY_DUE}
        self._reserved: set[str] = set()
        self._aside: set[str] = set()

    def _homes(self, state: ClusterState) -> Iterator[_Lines | _ByDue]:
        """The containers that a cluster is in while it is offered."""
        if state.area in self._queues:
            yield self._queues[state.area]
        elif state.due or state.area is not Area.HELD:
            yield self._due[state.area]
        if queue_of(state.name):
            yield self._held

    def _is_offered(self, state: ClusterState) -> bool:
        return bool(state.left) and state.name not in self._reserved and state.name not in self._aside

    def offer(self, state: ClusterState) -> None:
        """Offer a cluster by its state, which is new, or offer it no more: see `_is_offered`."""
        offered = self._is_offered(state)
        for home in self._homes(state):
            if offered:
                home.add(state)
            else:
                home.withdraw(state)

    def _offer_anew(self, name: str) -> None:
        """One of the reasons not to offer a cluster holds from now on, or no more."""
        if (state := self._clusters.get(name)) is not None:
            self.offer(state)

    def set_aside(self, name: str) -> None:
        """Do not offer a cluster that cannot be read. Its records stay counted."""
        self._aside.add(name)
        self._offer_anew(name)

    def bring_back(self, name: str) -> None:
        """Offer it again: it may be readable now."""
        self._aside.discard(name)
        self._offer_anew(name)

    def reserve(self, names: Iterable[str]) -> None:
        """Offer these to no claim until they are given back."""
        for name in names:
            self._reserved.add(name)
            self._offer_anew(name)

    def give_back(self, names: Iterable[str]) -> None:
        """Offer these again, as far as they still hold records."""
        for name in names:
            self._reserved.discard(name)
            self._offer_anew(name)

    def first(self, area: Area) -> str | None:
        """The oldest cluster of `incoming` or `bounces` of the tenant whose turn it is."""
        return self._queues[area].next()

    def has(self, area: Area) -> bool:
        """Whether `first` names one."""
        return bool(self._queues[area].names)

    def tenants(self, area: Area) -> Collection[str]:
        """The tenants between which `first` takes turns."""
        return self._queues[area].names.keys()

    def next_due(self, area: Area = Area.DEFERRED) -> int | None:
        """When the first record of an area's clusters is due, ms; of several that are due already, any."""
        return self._due[area].next_due()

    def first_due(self, now: int, area: Area = Area.DEFERRED) -> str | None:
        """The cluster with the earliest due record of an area, if that is due at `now`; of `deferred` that of
        the tenant whose turn it is."""
        row = self._due[area].next(now)
        return row.first() if row is not None else None

    def due_tenants(self, now: int) -> Collection[str]:
        """The tenants between which `first_due` takes turns in area deferred."""
        return self._due[Area.DEFERRED].ready(now)

    def first_held(self, domain: str) -> str | None:
        """The oldest cluster of a domain's held mail that may be claimed without an operator."""
        names = self._held.names.get(domain, ())
        return next((name for name in names if self._clusters[name].due), None)

    def held_domains(self) -> Iterator[str]:
        """The domains that have such a cluster, or one that is reserved; perhaps twice."""
        reserved = [self._clusters[name] for name in self._reserved if name in self._clusters]
        yield from {queue_of(each.name) for each in reserved if each.left and each.due} - {""}
        yield from (domain for domain in self._held.names if self.first_held(domain) is not None)


class _Lines:
    """Clusters by age, in lines that take turns."""

    def __init__(self, clusters: Mapping[str, ClusterState], line_of: Callable[[ClusterState], str]) -> None:
        self._clusters = clusters
        self._line_of = line_of
        self.names: dict[str, dict[str, None]] = {}
        """By line, in the order of their turns, names by age; none is empty."""

    def add(self, state: ClusterState) -> None:
        """Put a cluster behind those of its age, unless it is there. The last one is seldom younger."""
        names = self.names.setdefault(self._line_of(state), {})
        if state.name in names:
            return
        age = state.received
        younger = list(takewhile(lambda name: self._clusters[name].received > age, reversed(names)))
        names[state.name] = None
        for name in reversed(younger):
            del names[name]
            names[name] = None

    def withdraw(self, state: ClusterState) -> None:
        line = self._line_of(state)
        names = self.names.get(line, {})
        names.pop(state.name, None)
        if not names:
            self.names.pop(line, None)

    def next(self) -> str | None:
        """The oldest one of the line whose turn it is."""
        if not self.names:
            return None
        line = next(iter(self.names))
        names = self.names[line] = self.names.pop(line)
        return next(iter(names))


class _DueClusters:
    """A tenant's clusters by due time. One that is empty, or whose time is another now, is passed over."""

    __slots__ = ("_clusters", "_heap")

    def __init__(self, clusters: Mapping[str, ClusterState]) -> None:
        self._clusters = clusters
        self._heap: list[tuple[int, str]] = []

    def push(self, state: ClusterState) -> None:
        heappush(self._heap, (state.due, state.name))

    def withdraw(self, name: str) -> None:
        kept = [item for item in self._heap if item[1] != name]
        if len(kept) < len(self._heap):
            heapify(kept)
            self._heap = kept

    def next_due(self) -> int | None:
        while self._heap:
            due, name = self._heap[0]
            state = self._clusters.get(name)
            if state is not None and state.left and state.due == due:
                return due
            heappop(self._heap)
        return None

    def first(self) -> str:
        """The first one; there is one."""
        return self._heap[0][1]


class _ByDue(DueByTenant[_DueClusters]):
    """Clusters by due time, tenants in turn: `core.queueing.turns.DueByTenant` chooses the row."""

    __slots__ = ()

    def add(self, state: ClusterState) -> None:
        self.row(_tenant(state), state.due).push(state)

    def withdraw(self, state: ClusterState) -> None:
        # One that holds nothing is passed over when it comes first (`next_due`). Others are withdrawn as they
        # are reserved or set aside, which is seldom: so all rows may be looked at for them.
        if state.left:
            for row in self.rows:
                row.withdraw(state.name)


def _tenant(state: ClusterState) -> str:
    return state.tenant if state.area in (Area.INCOMING, Area.DEFERRED) else ""
