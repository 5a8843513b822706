"""Whether the wall clock can be believed: what it says is held against the time that has passed. Pure.

A leap: the wall clock stands more than BACK_MS behind, or more than AHEAD_MS ahead, of where it was last
believed plus what the monotonic clock has counted since. Across a stop that the monotonic clock did not
count (the machine was off), it may stand ahead by STOP_MS: the machine may have been off that long.

A leap puts the clock in doubt. The doubt ends when the clock agrees again, as after a correction, or
when it has run on without another leap for HOLD_MS: then it was the old time that was wrong, or nobody
minds. Until then `believes` goes on from where the clock was last believed. A restart goes on with the doubt
and with the time for which it has lasted, as long as the clock has not leapt again meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

BACK_MS = 60_000
AHEAD_MS = 3_600_000
STOP_MS = 30 * 24 * 3_600_000
HOLD_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Reading:
    """A moment that was believed, in ms."""

    wall: int
    monotonic: int
    boot: str = ""
    """What tells one run of the monotonic clock from another; "" = not known."""
    off: int = 0
    """How far the wall clock stood from `wall` then; 0 = it was believed."""
    held: int = 0
    """How long it had done so without another leap."""


class Change(Enum):
    """What a look at the clocks has found out."""

    LEAPT = "leapt"
    AGREES = "agrees"
    """After a leap it is back where it should be."""
    ACCEPTED = "accepted"
    """After a leap it has held its new time long enough."""


class ClockWatch:
    """Follows one wall clock."""

    def __init__(self, seen: Reading | None, now: Reading) -> None:
        """`seen` is what an earlier run believed last; None = there was none. Look at once."""
        counted = (
            seen is not None and seen.boot != "" and seen.boot == now.boot and seen.monotonic <= now.monotonic
        )
        self._boot = now.boot
        self._wall = now.wall if seen is None else seen.wall
        self._monotonic = seen.monotonic if seen is not None and counted else now.monotonic
        self._ahead = AHEAD_MS if counted or seen is None else STOP_MS
        self._doubt: tuple[int, int] | None = None
        """Wall less monotonic time since the leap, and the monotonic time of the leap."""
        self._carried = False
        """Whether the doubt is that of an earlier run, and nobody has been told yet."""
        if seen is not None and seen.off:
            passed = now.monotonic - seen.monotonic if counted else 0
            later = now.wall - (seen.wall + seen.off + passed)
            if -BACK_MS <= later <= (BACK_MS if counted else STOP_MS):
                self._doubt = now.wall - now.monotonic, now.monotonic - passed - seen.held
                self._carried = True

    @property
    def in_doubt(self) -> bool:
        """Whether the wall clock has leapt."""
        return self._doubt is not None

    def off_by(self, wall: int, monotonic: int) -> int:
        """How far the wall clock stands from where it should, ms: below 0 behind it, 0 while believed."""
        return wall - self._expected(monotonic) if self._doubt is not None else 0

    def believes(self, wall: int, monotonic: int) -> Reading:
        """The time to go by: the wall clock's, or where it was last believed and what has passed since."""
        if self._fits(wall, monotonic):
            return Reading(wall, monotonic, self._boot)
        expected = self._expected(monotonic)
        return Reading(expected, monotonic, self._boot, wall - expected, self.held(monotonic))

    def held(self, monotonic: int) -> int:
        """For how long the clock has been in doubt without another leap, ms; 0 while it is believed."""
        return monotonic - self._doubt[1] if self._doubt is not None else 0

    def look(self, wall: int, monotonic: int) -> Change | None:
        """Compare; tells what has changed by it, None when nothing has."""
        if self._fits(wall, monotonic):
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
        if self._carried:
            self._carried = False
            return Change.LEAPT
        return None

    def _fits(self, wall: int, monotonic: int) -> bool:
        expected = self._expected(monotonic)
        return expected - BACK_MS <= wall <= expected + self._ahead

    def _expected(self, monotonic: int) -> int:
        return self._wall + monotonic - self._monotonic

    def _believe(self, wall: int, monotonic: int) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._ahead = AHEAD_MS
        self._doubt = None
