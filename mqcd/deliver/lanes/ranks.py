"""Jobs in the order in which their lane serves them: by priority, without starving any (RFC 6710). Pure.

Jobs of one priority stand in the order of their turns (see `tenants`). The highest priority goes first; but
of LOWER_TURN turns in a row, one goes to the first job of the lower ones, if any waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

LOWER_TURN = 8
"""One in so many turns goes to lower priorities."""


class Ranked(Protocol):
    """What has a place."""

    @property
    def order(self) -> tuple[int, int]:
        """Its turn, and the number of its arrival."""

    @property
    def priority(self) -> int:
        """Higher goes first."""


Item = TypeVar("Item", bound=Ranked)


class Ranks(Generic[Item]):
    """Jobs by priority."""

    __slots__ = ("_next", "_rows", "_turns")

    def __init__(self) -> None:
        self._rows: dict[int, deque[Item]] = {}
        """By priority; none is empty."""
        self._next = 0
        """The priority whose turn it is."""
        self._turns = 0
        """How many have gone to the highest priority in a row while a lower one waited."""

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def __iter__(self) -> Iterator[Item]:
        """The first job first, then by priority and arrival."""
        return chain.from_iterable(self._rows[priority] for priority in self._order())

    @property
    def heads(self) -> list[Item]:
        """The first job of each priority."""
        return [row[0] for row in self._rows.values()]

    @property
    def first(self) -> Item:
        """The job whose turn it is. Raises KeyError where there is none."""
        return self._rows[self._next][0]

    def append(self, item: Item) -> None:
        """A new job."""
        row = self._rows.get(item.priority)
        if row is not None:
            if item.order > row[-1].order:
                row.append(item)
            else:
                row.insert(bisect_right(row, item.order, key=_order), item)
            return
        self._rows[item.priority] = deque((item,))
        self._choose()

    def put_back(self, item: Item) -> None:
        """A job that was taken, before the others of its priority."""
        self._rows.setdefault(item.priority, deque()).appendleft(item)
        self._choose()

    def take(self) -> Item:
        """The first job, out of the queue now. Raises KeyError where there is none."""
        item = self._rows[self._next].popleft()
        passed_over = len(self._rows) > 1 and self._next == max(self._rows)
        self._turns = self._turns + 1 if passed_over else 0
        self._clear(item.priority)
        return item

    def take_last(self) -> Item:
        """The job that would go last. Raises IndexError where there is none."""
        priority = self._order()[-1]
        item = self._rows[priority].pop()
        self._clear(priority)
        return item

    def remove(self, item: Item) -> None:
        """Take out a job that waits."""
        self._rows[item.priority].remove(item)
        self._clear(item.priority)

    def _clear(self, priority: int) -> None:
        if not self._rows[priority]:
            del self._rows[priority]
        self._choose()

    def _order(self) -> list[int]:
        """The priorities in the order in which they go now."""
        if len(self._rows) < 2:
            return list(self._rows)
        return [self._next, *sorted(self._rows.keys() - {self._next}, reverse=True)]

    def _choose(self) -> None:
        rows = self._rows
        if len(rows) < 2:
            self._next = next(iter(rows), 0)
            return
        self._next = highest = max(rows)
        if self._turns >= LOWER_TURN - 1:
            self._next = min(rows.keys() - {highest}, key=lambda priority: rows[priority][0].order)


def _order(item: Ranked) -> tuple[int, int]:
    return item.order
