"""Watches the wall clock of a shard, and logs its leaps.

Promise: while the clock is in doubt nothing expires and no file is removed for its age, and new SPIDs and the
MANIFEST go by the time that is still believed. There is no timer: each use of the wall clock compares it
first, so an idle server does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from mqcd.core.clockwatch import HOLD_MS, Change, ClockWatch

if TYPE_CHECKING:
    from mqcd.core.ports import Clock

log = logging.getLogger(__name__)

_HOURS = HOLD_MS // 3_600_000


def doubt(seen: int, clock: Clock) -> str:
    """What a start at this moment would doubt about the clock, for people; "" when it would believe it.

    `seen` is the wall time in the MANIFEST, ms.
    """
    wall, monotonic = clock.now(), clock.monotonic()
    watch = ClockWatch(seen, wall, monotonic)
    watch.look(wall, monotonic)
    if not watch.in_doubt:
        return ""
    off = _distance(watch.off_by(wall, monotonic))
    return f"the clock is {off} the queue's last time: no mail expires until it agrees, or for {_HOURS} hours"


def _distance(off: int) -> str:
    return f"{timedelta(seconds=abs(off) // 1000)} {'ahead of' if off > 0 else 'behind'}"


class ClockGuard:
    """One per shard."""

    def __init__(self, clock: Clock, watch: ClockWatch, on_change: Callable[[], None]) -> None:
        """`on_change` is called whenever wall time has changed by a leap, or by the end of one."""
        self._clock = clock
        self._watch = watch
        self._on_change = on_change

    def look(self) -> bool:
        """Compare the clocks; whether the wall clock can be believed."""
        self._read()
        return not self._watch.in_doubt

    def _read(self) -> tuple[int, int]:
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        change = self._watch.look(wall, monotonic)
        if change is not None:
            self._log(change, self._watch.off_by(wall, monotonic))
            self._on_change()
        return wall, monotonic

    @property
    def in_doubt(self) -> bool:
        return self._watch.in_doubt

    def believed(self) -> int:
        """The time to go by where a wrong one would leave traces for good, ms."""
        wall, monotonic = self._read()
        return self._watch.believes(wall, monotonic) if self._watch.in_doubt else wall

    def off_by(self) -> int:
        """How far the wall clock stands from where it should, ms; 0 when it is believed."""
        return self._watch.off_by(*self._read())

    @staticmethod
    def _log(change: Change, off: int) -> None:
        if change is Change.LEAPT:
            log.error(
                "the clock has leapt, it is %s the expected time: no mail expires and no file is removed "
                "for its age until it agrees again, or has kept its new time for %d hours",
                _distance(off),
                _HOURS,
            )
        elif change is Change.AGREES:
            log.warning("the clock agrees again: mail may expire")
        else:
            log.warning("the clock has kept its new time for %d hours, which is believed now", _HOURS)
