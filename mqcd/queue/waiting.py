"""Residents that wait to be claimed, in the order in which they may be. Pure bookkeeping.

New mail in order of arrival, the rest by due time, bounces apart. Entries are left in place when a
resident is claimed elsewhere, evacuated or ended, and passed over when they come up: its state and due
time say whether an entry is still meant. `tidy` lets go of the others, for nobody may come to claim.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from mqcd.core.model import Area
from mqcd.queue.ring import Resident, State

_SLACK = 1000
_FULL_ENOUGH = 0.8
"""Share of entries that are meant, from which a heap is left as it is."""


class DueHeap:
    """Residents by due time."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Resident]] = []
        self._count = 0

    def push(self, resident: Resident) -> None:
        """Add one."""
        self._count += 1
        heappush(self._heap, (resident.due, self._count, resident))

    def tidy(self) -> None:
        """Let go of what is not meant any more, if it is much."""
        if len(self._heap) > _SLACK:
            kept = [entry for entry in self._heap if _meant(entry)]
            if len(kept) < len(self._heap) * _FULL_ENOUGH:
                self._heap = kept
                heapify(kept)

    def next_due(self) -> int | None:
        """The earliest due time, ms."""
        heap = self._heap
        while heap and not _meant(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        entries = [entry for entry in self._heap if _meant(entry)]
        for _, _, resident in entries:
            resident.due = min(resident.due, latest)
        self._heap = [(resident.due, count, resident) for _, count, resident in entries]
        heapify(self._heap)

    def pop(self, now: int) -> Resident | None:
        """The first that is due at `now`."""
        due = self.next_due()
        return heappop(self._heap)[2] if due is not None and due <= now else None


def _meant(entry: tuple[int, int, Resident]) -> bool:
    due, _, resident = entry
    return resident.state is State.WAITING and resident.due == due


class Waiting:
    """All waiting residents of a shard."""

    def __init__(self) -> None:
        self._fresh: deque[Resident] = deque()
        self._mail = DueHeap()
        self._bounces: deque[Resident] = deque()
        self._late_bounces = DueHeap()

    def add(self, resident: Resident) -> None:
        """A resident may be claimed once it is due."""
        if resident.area is Area.BOUNCES:
            if resident.due:
                self._late_bounces.push(resident)
            else:
                self._bounces.append(resident)
        elif resident.area is Area.INCOMING and not resident.due:
            self._fresh.append(resident)
        else:
            self._mail.push(resident)

    def tidy(self) -> None:
        """Let go of residents that have been evacuated."""
        self._mail.tidy()
        self._late_bounces.tidy()
        self._fresh = deque(each for each in self._fresh if _stands(each, Area.INCOMING))
        self._bounces = deque(each for each in self._bounces if _stands(each, Area.BOUNCES))

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        self._mail.bring_forward(latest)
        self._late_bounces.bring_forward(latest)

    def pop_new(self) -> Resident | None:
        """The oldest new mail."""
        return _pop(self._fresh, Area.INCOMING)

    def pop_due(self, now: int) -> Resident | None:
        """The first mail to become due, if it is due at `now`."""
        return self._mail.pop(now)

    def pop_bounce(self, now: int) -> Resident | None:
        """A bounce to report on."""
        return self._late_bounces.pop(now) or _pop(self._bounces, Area.BOUNCES)

    def next_due(self) -> int | None:
        """When the next mail is due, ms; 0 when some is already."""
        if _peek(self._fresh, Area.INCOMING):
            return 0
        return self._mail.next_due()

    @property
    def has_bounces(self) -> bool:
        """Whether a bounce waits, due or not."""
        return _peek(self._bounces, Area.BOUNCES) or self._late_bounces.next_due() is not None


def _stands(resident: Resident, area: Area) -> bool:
    return resident.state is State.WAITING and resident.area is area and not resident.due


def _peek(queue: deque[Resident], area: Area) -> bool:
    while queue:
        if _stands(queue[0], area):
            return True
        queue.popleft()
    return False


def _pop(queue: deque[Resident], area: Area) -> Resident | None:
    return queue.popleft() if _peek(queue, area) else None
