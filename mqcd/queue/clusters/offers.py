"""Chooses the cluster that a claim loads from next. Pure, and used on the event loop alone.

| area | order | found by |
|---|---|---|
| incoming, bounces | by age | `first` |
| deferred, removed | by the due time of the first record | `first_due`, `next_due` |
| held, with a due time | the same, and by age for a domain | the same, and `first_held` |
| held, without one | | nothing: an operator has to ask for it |

A cluster is offered while it holds records, but for two cases:

| not offered | from | until |
|---|---|---|
| reserved: it is being replaced | `reserve` | `give_back` |
| set aside: it cannot be read | `set_aside` | the next `offer` |

Reserved is stronger: `offer` does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from mqcd.core.model import BY_DUE, Area
from mqcd.queue.clusters.file import queue_of
from mqcd.queue.manifest.state import ClusterState


class Offers:
    """The offered clusters of a shard."""

    def __init__(self, clusters: Mapping[str, ClusterState]) -> None:
        """`clusters`: all of them, offered or not; kept by `ClusterIndex`."""
        self._clusters = clusters
        self._queues: dict[Area, dict[str, None]] = {Area.INCOMING: {}, Area.BOUNCES: {}}
        self._due: dict[Area, list[tuple[int, str]]] = {area: [] for area in BY_DUE}
        """Heaps. What stands there may have changed since, see `next_due`."""
        self._held: dict[str, dict[str, None]] = {}
        """By domain, the clusters of its held mail."""
        self._reserved: set[str] = set()

    def offer(self, state: ClusterState) -> None:
        """Offer a cluster by its state, which is new; not if it is reserved or holds nothing."""
        if not state.left or state.name in self._reserved:
            self.withdraw(state.name)
        elif state.area in BY_DUE:
            if domain := queue_of(state.name):
                self._held.setdefault(domain, {})[state.name] = None
            # Held mail without a due time waits for an operator.
            if state.due or state.area is not Area.HELD:
                heappush(self._due[state.area], (state.due, state.name))
        elif state.area in self._queues:
            self._queues[state.area][state.name] = None

    def withdraw(self, name: str) -> None:
        """Offer a cluster no more that is empty or reserved: `next_due` passes it over in the heaps."""
        for queue in self._queues.values():
            queue.pop(name, None)
        domain = queue_of(name)
        if domain and (held := self._held.get(domain)) is not None:
            held.pop(name, None)
            if not held:
                del self._held[domain]

    def set_aside(self, name: str) -> None:
        """Do not offer a cluster until the next `offer`. Its records stay counted."""
        area = self._clusters[name].area
        if area in BY_DUE:
            heap = self._due[area]
            heap[:] = [item for item in heap if item[1] != name]
            heapify(heap)
        self.withdraw(name)

    def reserve(self, names: Iterable[str]) -> None:
        """Offer these to no claim until they are given back."""
        for name in names:
            self._reserved.add(name)
            if name in self._clusters:
                self.set_aside(name)

    def give_back(self, names: Iterable[str]) -> None:
        """Offer these again, as far as they still hold records."""
        for name in names:
            self._reserved.discard(name)
            if (state := self._clusters.get(name)) is not None:
                self.offer(state)

    def first(self, area: Area) -> str | None:
        """The oldest cluster of `incoming` or `bounces`."""
        return next(iter(self._queues[area]), None)

    def next_due(self, area: Area = Area.DEFERRED) -> int | None:
        """When the first record of an area's clusters is due, ms."""
        heap = self._due[area]
        while heap:
            due, name = heap[0]
            state = self._clusters.get(name)
            if state is not None and state.left and state.due == due and name not in self._reserved:
                return due
            heappop(heap)
        return None

    def first_due(self, now: int, area: Area = Area.DEFERRED) -> str | None:
        """The cluster with the earliest due record of an area, if that is due at `now`."""
        due = self.next_due(area)
        return self._due[area][0][1] if due is not None and due <= now else None

    def first_held(self, domain: str) -> str | None:
        """The oldest cluster of a domain's held mail that may be claimed without an operator."""
        names = self._held.get(domain, ())
        return next((name for name in names if self._clusters[name].due), None)

    def held_domains(self) -> Iterator[str]:
        """The domains that have such a cluster, or one that is reserved; perhaps twice."""
        reserved = [self._clusters[name] for name in self._reserved if name in self._clusters]
        yield from {queue_of(each.name) for each in reserved if each.left and each.due} - {""}
        yield from (domain for domain in self._held if self.first_held(domain) is not None)
