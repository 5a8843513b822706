"""Keeps what sleeps until its time comes: lanes, zones, and the limits for which jobs stand aside. Pure.

Each has `asleep`, the time until which it sleeps; 0 = it is awake, a lane also when the time is past. Only
`Alarms` changes it. A suspended lane does not sleep: it is looked at when its next probe may begin.

| change | `asleep` | its alarm |
|---|---|---|
| `sleep` until a time | that time | is set |
| `sleep` again, until another time | the other time | another is set; the first wakes nothing |
| `due` at its time | 0 | has gone off |
| `wake_all` | 0 | is forgotten, as are those for probes |

Times are monotonic ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from mqcd.deliver.lanes.lane import Lane
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.lanes.turns import Zone

Sleeper = Lane | Zone | Limit


class Alarms:
    """The alarms of one table of lanes."""

    def __init__(self) -> None:
        self._alarms: list[tuple[int, int, Sleeper]] = []
        self._count = 0

    def sleep(self, what: Sleeper, until: int) -> None:
        """It sleeps until then."""
        what.asleep = until
        self._set(until, what)

    def probe(self, lane: Lane) -> None:
        """Look at a suspended lane when its next probe may begin."""
        self._set(lane.suspension.until, lane)

    def wake_all(self) -> None:
        """Nothing sleeps any more, and no alarm is set."""
        for _, _, what in self._alarms:
            what.asleep = 0
        self._alarms.clear()

    def next(self) -> int | None:
        """When `due` has something to do."""
        alarms = self._alarms
        while alarms and not _meant(alarms[0][0], alarms[0][2]):
            heappop(alarms)
        return alarms[0][0] if alarms else None

    def due(self, now: int) -> Iterator[Sleeper]:
        """What has to be looked at, one after the other; it is awake."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            at, _, what = heappop(alarms)
            if what.asleep == at:
                what.asleep = 0
                yield what
            elif isinstance(what, Lane):
                yield what

    def _set(self, at: int, what: Sleeper) -> None:
        self._count += 1
        heappush(self._alarms, (at, self._count, what))


def _meant(at: int, what: Sleeper) -> bool:
    """Whether an alarm still has a purpose. A lane that has been emptied in its sleep needs it: it may get
    mail before that ends."""
    if what.asleep == at:
        return True
    return isinstance(what, Lane) and what.suspended and what.suspension.until == at and bool(what.queue.jobs)
