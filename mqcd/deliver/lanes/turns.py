"""Chooses the next lane: zones take turns, each in an order of its own. Pure.

* A named zone sends in order of arrival, tenants in turn: of its lanes that stand in line, the one goes first
  whose head of line has the first turn (see `tenants`).
* In the default zone lanes take turns, one job each.
* A zone that sleeps has no turns; its lanes keep their places.

Each step takes constant time, in a named zone logarithmic time in the number of lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from heapq import heappop, heappush, heapreplace

from mqcd.deliver.lanes.lane import Lane, Position
from mqcd.deliver.lanes.tenants import TurnOrder

# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_OUT, _IN_LINE = Position.OUT, Position.IN_LINE


class Zone:
    """The lanes of one zone that stand in line, each once.

    A named zone has them by the order of their first job when they joined. A lane whose head has become later
    since moves back when it would be popped; one whose head has become earlier (mail given back, urgent mail)
    moves nowhere: it keeps its place for this turn. A lane that was emptied stays until it is popped, and is
    left then (`Turn.LEAVE`). No two lanes have a job of the same order, so lanes are never compared.
    """

    __slots__ = ("_ordered", "_queue", "asleep", "in_line", "lanes", "name", "turns")

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns = TurnOrder()
        """Of a named zone: the turns of the jobs of all its lanes."""
        self.asleep = 0
        """Until when it has no turns; 0 = it has. Only `Alarms` changes it."""
        self.in_line = False
        self._queue: deque[Lane] = deque()
        self._ordered: list[tuple[tuple[int, int], Lane]] = []
        self.lanes: Sized = self._ordered if name else self._queue
        """The one of the two that it uses."""

    def push(self, lane: Lane) -> None:
        """A lane with jobs joins, once."""
        if self.name:
            heappush(self._ordered, (lane.queue.jobs.row[0].order, lane))
        else:
            self._queue.append(lane)

    def pop(self) -> Lane:
        """Remove and return the next lane."""
        if not self.name:
            return self._queue.popleft()
        heap = self._ordered
        while True:
            order, lane = heap[0]
            if not lane.queue.waiting or lane.queue.jobs.row[0].order <= order:
                return heappop(heap)[1]
            heapreplace(heap, (lane.queue.jobs.row[0].order, lane))


class Turns:
    """All lanes that stand in line."""

    def __init__(self) -> None:
        self._zones: dict[str, Zone] = {}
        self._line: deque[Zone] = deque()

    def __bool__(self) -> bool:
        return bool(self._line)

    @property
    def in_line(self) -> int:
        """Lanes in line, those of sleeping zones left out."""
        return sum(len(zone.lanes) for zone in self._zones.values() if not zone.asleep)

    def push(self, lane: Lane) -> None:
        """A lane joins its zone's line, if it has jobs and neither stands there nor is held back."""
        if lane.position is not _OUT or not lane.queue.waiting:
            return
        lane.position = _IN_LINE
        name = lane.hop.policy.zone
        zone = self._zones.get(name) or self.zone(name)
        zone.push(lane)
        if not zone.in_line and not zone.asleep:
            zone.in_line = True
            self._line.append(zone)

    def pop(self) -> Lane | None:
        """Remove and return the next lane; None when no lane is in line."""
        while self._line:
            zone = self._line.popleft()
            zone.in_line = False
            if zone.asleep or not zone.lanes:
                continue
            lane = zone.pop()
            lane.position = _OUT
            if zone.lanes:
                zone.in_line = True
                self._line.append(zone)
            return lane
        return None

    def zone(self, name: str) -> Zone:
        """The zone of that name."""
        zone = self._zones.get(name)
        if zone is None:
            zone = self._zones[name] = Zone(name)
        return zone

    def line_up(self, zone: Zone) -> None:
        """A zone that was asleep has its turns again."""
        if zone.lanes and not zone.in_line:
            zone.in_line = True
            self._line.append(zone)

    def line_up_all(self) -> None:
        """Every zone has its turns again."""
        for zone in self._zones.values():
            self.line_up(zone)
