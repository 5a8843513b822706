"""Watches the wall clock of a shard, and says aloud when it leaps.

Promise: while the clock is in doubt nothing expires and nothing is swept by its age, and new SPIDs and the
MANIFEST go by the time that is still believed, so the doubt outlives a restart. No timer of its own: who
is about to use the wall clock looks first, so an idle server does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from mqcd.core.clockwatch import HOLD_MS, Change, ClockWatch, Reading
from mqcd.disk.durable import Disk
from mqcd.queue.manifest.log import ManifestState

if TYPE_CHECKING:
    from mqcd.core.ports import Clock

log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_HOURS = HOLD_MS // 3_600_000


def boot_id(disk: Disk) -> str:
    """What names this run of the machine, and so of its monotonic clock; "" where the system has none."""
    try:
        fd = disk.open(_BOOT_ID, 0)
    except OSError:
        return ""
    try:
        return disk.pread(fd, 64, 0).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        disk.close(fd)


class ClockFields(TypedDict):
    """Fields of a MANIFEST's edit."""

    clock: int
    monotonic: int
    boot: str
    leap: int
    held: int


def fields_of(reading: Reading) -> ClockFields:
    """A moment as the MANIFEST keeps it."""
    return {
        "clock": reading.wall,
        "monotonic": reading.monotonic,
        "boot": reading.boot,
        "leap": reading.off,
        "held": reading.held,
    }


def seen_in(state: ManifestState) -> Reading | None:
    """The moment that a MANIFEST keeps; None when there is none yet."""
    return Reading(state.clock, state.monotonic, state.boot, state.leap, state.held) if state.clock else None


def doubt(seen: Reading | None, now: Reading) -> str:
    """What a start at this moment would doubt about the clock, in words; "" when it would believe it."""
    watch = ClockWatch(seen, now)
    watch.look(now.wall, now.monotonic)
    if not watch.in_doubt:
        return ""
    off = _distance(watch.off_by(now.wall, now.monotonic))
    left = timedelta(seconds=(HOLD_MS - watch.held(now.monotonic)) // 1000)
    return (
        f"the clock stands {off} where it should: no mail expires until it agrees again, or for {left} more"
    )


def _distance(off: int) -> str:
    return f"{timedelta(seconds=abs(off) // 1000)} {'ahead of' if off > 0 else 'behind'}"


class ClockGuard:
    """One per shard."""

    def __init__(self, clock: Clock, watch: ClockWatch, leapt: Callable[[], None]) -> None:
        """`leapt` is called whenever wall time has changed by a leap, or by the end of one."""
        self._clock = clock
        self._watch = watch
        self._leapt = leapt

    def look(self) -> bool:
        """Compare the clocks; whether the wall clock can be believed."""
        self._read()
        return not self._watch.in_doubt

    def _read(self) -> tuple[int, int]:
        """Wall and monotonic time, compared."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        change = self._watch.look(wall, monotonic)
        if change is not None:
            self._tell(change, self._watch.off_by(wall, monotonic))
            self._leapt()
        return wall, monotonic

    @property
    def in_doubt(self) -> bool:
        """What the last look found."""
        return self._watch.in_doubt

    def trusted(self) -> Reading:
        """The time to go by where a wrong one would leave traces for good."""
        return self._watch.believes(*self._read())

    def to_record(self) -> ClockFields:
        """What the MANIFEST keeps of it."""
        return fields_of(self.trusted())

    def wall(self) -> int:
        """The same as wall time alone: asked for each message, so it makes no `Reading` while all is well."""
        wall, monotonic = self._read()
        return self._watch.believes(wall, monotonic).wall if self._watch.in_doubt else wall

    def off_by(self) -> int:
        """How far the wall clock stands from where it should, ms; 0 when it is believed."""
        return self._watch.off_by(*self._read())

    @staticmethod
    def _tell(change: Change, off: int) -> None:
        if change is Change.LEAPT:
            log.error(
                "the clock has leapt: it stands %s where it should; no mail expires and no spool file is "
                "removed for its age until it agrees again, or has kept its new time for %d hours",
                _distance(off),
                _HOURS,
            )
        elif change is Change.AGREES:
            log.warning("the clock agrees again: mail may expire")
        else:
            log.warning("the clock has kept its new time for %d hours, which is believed now", _HOURS)
