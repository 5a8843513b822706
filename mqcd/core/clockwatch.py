"""Checks whether the wall clock can be believed, against the time that has passed. Pure.

A leap: the wall clock stands more than BACK_MS behind, or more than AHEAD_MS ahead, of where it was last
believed plus what the monotonic clock has counted since. At a start nothing has counted the time between; so
the clock may stand ahead of what the last run believed by STOP_MS: the machine may have been off that long.

A leap puts the clock in doubt. The doubt ends when the clock agrees again, as after a correction, or
when it has run on without another leap for HOLD_MS: then it was the old time that was wrong. Until then
`believes` goes on from where the clock was last believed.
"""

from __future__ import annotations

from enum import Enum

BACK_MS = 60_000
AHEAD_MS = 3_600_000
STOP_MS = 30 * 24 * 3_600_000
HOLD_MS = 24 * 3_600_000


class Change(Enum):
    """The result of one comparison of the clocks."""

    LEAPT = "leapt"
    AGREES = "agrees"
    """After a leap it is back where it should be."""
    ACCEPTED = "accepted"
    """After a leap it has held its new time long enough."""


class ClockWatch:
    """Follows one wall clock. All times in ms."""

    def __init__(self, seen: int, wall: int, monotonic: int) -> None:
        """`seen` is the wall time that an earlier run believed last; 0 = there was none. Look at once."""
        self._wall = seen or wall
        self._monotonic = monotonic
        self._ahead = STOP_MS if seen else AHEAD_MS
        self._doubt: tuple[int, int] | None = None
        """Wall less monotonic time since the leap, and the monotonic time of the leap."""

    @property
    def in_doubt(self) -> bool:
        """Whether the wall clock has leapt."""
        return self._doubt is not None

    def off_by(self, wall: int, monotonic: int) -> int:
        """How far the wall clock stands from where it should, ms: below 0 behind it, 0 while believed."""
        return wall - self._expected(monotonic) if self._doubt is not None else 0

    def believes(self, wall: int, monotonic: int) -> int:
        """The time to go by: the wall clock's, or where it was last believed and what has passed since."""
        expected = self._expected(monotonic)
        return wall if expected - BACK_MS <= wall <= expected + self._ahead else expected

    def look(self, wall: int, monotonic: int) -> Change | None:
        """Compare; returns what has changed by it, None when nothing has."""
        expected = self._expected(monotonic)
        if expected - BACK_MS <= wall <= expected + self._ahead:
            change = Change.AGREES if self._doubt is not None else None
            self._believe(wall, monotonic)
            return change
        offset = wall - monotonic
        if self._doubt is None or abs(offset - self._doubt[0]) > BACK_MS:
            self._doubt = offset, monotonic
            return Change.LEAPT
        if monotonic - self._doubt[1] >= HOLD_MS:
            self._believe(wall, monotonic)
            return Change.ACCEPTED
        return None

    def _expected(self, monotonic: int) -> int:
        return self._wall + monotonic - self._monotonic

    def _believe(self, wall: int, monotonic: int) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._ahead = AHEAD_MS
        self._doubt = None
