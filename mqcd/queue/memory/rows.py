"""Entries in an order, divided by segment: an evacuation drops all that it has moved at once.

An entry is not taken out when it is claimed elsewhere, ended, or gets another due time or segment. Its item
is obsolete then, and dropped when it comes up. So an entry whose due time changes while it waits must be
pushed again. None changes its segment meanwhile: one that is carried waits afterwards (`wal.entry_states`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from mqcd.core.model import Area
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry

_Item = tuple[int, int, JournalEntry]
"""Due time (ms), a number that is higher for each item pushed, the entry."""


class Row:
    """Entries in order of arrival: by segment, and within one as they were added."""

    def __init__(self, waits_here: Callable[[JournalEntry], bool]) -> None:
        """`waits_here`: whether an entry still does; if not, it is obsolete."""
        self._waits_here = waits_here
        self.parts: dict[int, deque[JournalEntry]] = {}
        """By segment number."""

    def push(self, entry: JournalEntry) -> None:
        """Add one."""
        part = self.parts.get(entry.segment.number)
        if part is None:
            part = self.parts[entry.segment.number] = deque()
        part.append(entry)

    def _first(self) -> deque[JournalEntry] | None:
        parts = self.parts
        while parts:
            number = min(parts)
            part = parts[number]
            while part:
                if part[0].segment.number == number and self._waits_here(part[0]):
                    return part
                part.popleft()
            del parts[number]
        return None

    def pop(self) -> JournalEntry | None:
        """The first one."""
        part = self._first()
        return part.popleft() if part is not None else None

    def __bool__(self) -> bool:
        return self._first() is not None


class DueHeap:
    """Entries of some areas by due time.

    An item has the due time that its entry had when it was pushed. It is obsolete unless the entry still
    waits, in that segment and one of the areas, with that due time. `bring_forward` alone changes due times
    in place.
    """

    def __init__(self, *areas: Area) -> None:
        self._areas = areas
        self.parts: dict[int, list[_Item]] = {}
        """A heap for each segment, by its number."""
        self._count = 0

    def push(self, entry: JournalEntry) -> None:
        """Add one."""
        self._count += 1
        heap = self.parts.setdefault(entry.segment.number, [])
        heappush(heap, (entry.due, self._count, entry))

    def _is_current(self, number: int, item: _Item) -> bool:
        """Whether an item of the heap of that segment is not obsolete."""
        due, _, entry = item
        if entry.state is not State.WAITING or entry.due != due:
            return False
        return entry.segment.number == number and entry.area in self._areas

    def _first(self) -> list[_Item] | None:
        """The heap that has the earliest."""
        first = None
        for number in tuple(self.parts):
            heap = self.parts[number]
            while heap and not self._is_current(number, heap[0]):
                heappop(heap)
            if not heap:
                del self.parts[number]
            elif first is None or heap[0] < first[0]:
                first = heap
        return first

    def next_due(self) -> int | None:
        """The earliest due time, ms."""
        first = self._first()
        return first[0][0] if first is not None else None

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        for number, heap in self.parts.items():
            items = [item for item in heap if self._is_current(number, item)]
            for _, _, entry in items:
                entry.due = min(entry.due, latest)
            self.parts[number] = [(entry.due, count, entry) for _, count, entry in items]
            heapify(self.parts[number])

    def pop(self, now: int) -> JournalEntry | None:
        """The first that is due at `now`."""
        first = self._first()
        return heappop(first)[2] if first is not None and first[0][0] <= now else None
