"""Lines of clusters that are due earlier than they say: an operator asked, or the clock went back.

Pure, and changed on the event loop alone; threads that read a cluster are given its `Earlier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mqcd.queue.format import record
from mqcd.queue.manifest.state import ClusterState

Chosen = Callable[[str], bool] | None
"""What `choosing.chooser` gives."""
_MOST_REQUESTS = 16
"""Requests that each line of a cluster is compared with; of more, all lines before their end are due."""
_NEVER = 1 << 62


class Request(NamedTuple):
    """Lines before `end` that are selected are due at `due`, the others there are taken with them."""

    chosen: Chosen
    due: int
    end: int


class Earlier(NamedTuple):
    """What holds for the lines of one cluster."""

    latest: int
    """None is due later than this, ms."""
    requests: Sequence[Request] = ()
    end: int = 0
    """Lines before it are taken with those that requests have chosen."""

    def due(self, at: int, raw: bytes, due: int, now: int) -> int:
        """When a line is due that begins at `at`, and says `due`; not looked at closely if it is at `now`."""
        due = min(due, self.latest)
        if at >= self.end or due <= now:
            return due
        text = record.verify(raw)
        asked = [each for each in self.requests if at < each.end]
        return min([due, *(each.due for each in asked if each.chosen is None or each.chosen(text))])


_NOTHING = Earlier(_NEVER)


class EarlierDues:
    """What holds for the clusters of a shard, by name."""

    def __init__(self) -> None:
        self._by_cluster: dict[str, Earlier] = {}
        self._moved: dict[int, list[tuple[Chosen, int]]] = {}
        """By segment that is being evacuated: what of it is due from when on."""

    def of(self, state: ClusterState) -> Earlier:
        """What holds for a cluster's lines."""
        known = self._by_cluster.get(state.name, _NOTHING)
        return known if known.latest < _NEVER else known._replace(latest=state.due_last)

    def first_due(self, state: ClusterState) -> int:
        """When the first record of a cluster is due that says `state.due`."""
        known = self._by_cluster.get(state.name, _NOTHING)
        return min(known.latest, state.due, *(each.due for each in known.requests if each.end > state.cursor))

    def bring_forward(self, name: str, latest: int) -> None:
        """No line of the cluster is due later than this."""
        known = self._by_cluster.get(name, _NOTHING)
        self._by_cluster[name] = known._replace(latest=min(latest, known.latest))

    def expedite(self, name: str, request: Request) -> None:
        """What is selected of the cluster is due earlier."""
        known = self._by_cluster.get(name, _NOTHING)
        requests = [*known.requests, request]
        end = max(known.end, request.end)
        if len(requests) > _MOST_REQUESTS:
            # Some are tried unasked; else those of the first request would not be, though it was answered.
            requests = [Request(None, request.due, end)]
        self._by_cluster[name] = Earlier(known.latest, requests, end)

    def inherit(self, state: ClusterState, earlier: Earlier) -> None:
        """A cluster has lines of one of which this held."""
        if earlier is _NOTHING:
            return
        requests = [each._replace(end=state.size) for each in earlier.requests]
        self._by_cluster[state.name] = Earlier(earlier.latest, requests, state.size if requests else 0)

    def pop(self, name: str) -> Earlier:
        """Forget a cluster. Returns what held for it."""
        return self._by_cluster.pop(name, _NOTHING)

    def expedite_moved(self, segment: int, chosen: Chosen, due: int) -> None:
        """What is selected of a segment is due at `due` when it has become clusters."""
        self._moved.setdefault(segment, []).append((chosen, due))

    def pop_moved(self, segment: int) -> Sequence[tuple[Chosen, int]]:
        """What was asked of a segment that has become clusters."""
        return self._moved.pop(segment, ())
