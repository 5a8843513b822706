"""SPIDs: 64-bit names of messages, never reused, that sort by time of acceptance.

Layout, from the highest bit: 41 bits of milliseconds since 2020-01-01 UTC, 8 bits shard, 14 bits of a
counter that runs on (it does not restart each millisecond, so its low bits fill the silos evenly),
1 bit that says whether the message had several recipients.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.errors import DecodeError

EPOCH_MS = 1_577_836_800_000
"""2020-01-01T00:00:00Z in milliseconds of Unix time."""
SILOS = 32
"""How many a spool has unless `silofactor` says otherwise."""
_SHARD_BITS, _COUNTER_BITS = 8, 14
_MS_SHIFT = _SHARD_BITS + _COUNTER_BITS + 1
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_LATEST = (1 << 64 - _MS_SHIFT) - 1
"""Milliseconds since the epoch that a SPID can hold: until 2089. A clock beyond that is wrong."""


_RESERVE_MS = 10_000
"""How far ahead of the clock SPIDs are reserved: short, for after a crash they begin there."""
_RESERVE_AHEAD_MS = 1000
"""The same where SPIDs are ahead of the clock themselves: 16 million of them."""


def format_spid(spid: int) -> str:
    """The SPID as its 16 upper-case hex digits."""
    return f"{spid:016X}"


def parse_spid(text: str) -> int:
    """The SPID that `text` writes. Raises DecodeError unless it is 16 hex digits."""
    if len(text) != 16 or text.strip("0123456789ABCDEFabcdef"):
        raise DecodeError(f"not a SPID (16 hex digits): {text[:40]!r}")
    return int(text, 16)


def is_several(spid: int) -> bool:
    """Whether the message had several recipients when it was accepted."""
    return bool(spid & 1)


def silo_of(spid: int, silos: int) -> int:
    """The number, 1 to `silos`, of the silo that holds the message's spool file."""
    return (spid >> 1) % silos + 1


def shard_of(spid: int) -> int:
    """The shard that accepted the message."""
    return (spid >> _COUNTER_BITS + 1) & (1 << _SHARD_BITS) - 1


def time_of(spid: int) -> int:
    """When the SPID was made, ms since the Unix epoch (its own clock: never behind the last one)."""
    return (spid >> _MS_SHIFT) + EPOCH_MS


def accepted_by(spid: int, received: int) -> int:
    """When a message was accepted at the latest, ms: one of a clock that was ahead is as old as its SPID."""
    return min(received, time_of(spid))


def spid_at(ms: int) -> int:
    """The least SPID that can be made at `ms` (Unix time)."""
    return min(max(0, ms - EPOCH_MS), _LATEST) << _MS_SHIFT


class Reserved:
    """SPIDs that were handed out and name no message yet."""

    MOST = 100_000
    """The oldest of more are forgotten: a message comes within seconds of its SPID, or never."""

    def __init__(self) -> None:
        self._spids: dict[int, None] = {}

    def add(self, spid: int) -> None:
        self._spids[spid] = None
        if len(self._spids) > self.MOST:
            del self._spids[next(iter(self._spids))]

    def check(self, spids: Sequence[int]) -> None:
        """Raises ValueError unless each may name a message that comes now."""
        for spid in spids:
            if spid not in self._spids or spids.count(spid) > 1:
                raise ValueError(f"SPID {format_spid(spid)} is not reserved, or names another message")

    def used(self, spid: int) -> None:
        """It names a message now, for ever."""
        self._spids.pop(spid, None)


class SpidSource:
    """Hands out SPIDs of one shard, each greater than all before and than `floor`.

    The clock is read by the caller; one that goes back or stands still only makes the SPIDs' own
    time run ahead of it.
    """

    def __init__(self, shard: int, floor: int) -> None:
        if not 0 <= shard < 1 << _SHARD_BITS:
            raise ValueError(f"shard {shard} is not in 0..255")
        self._shard = shard
        self._last = floor
        self._counter = (floor >> 1) & _COUNTER_MASK

    @property
    def last(self) -> int:
        """The greatest SPID handed out, or the floor."""
        return self._last

    def pass_over(self, spid: int) -> None:
        """Hand out none up to this one: it names a message of another store that is now here."""
        self._last = max(self._last, spid)

    def ceiling(self, now_ms: int) -> int:
        """Up to where SPIDs may be reserved at `now_ms`, which is above all that were handed out.

        However often a reserve is lost, SPIDs run away from a clock that stands behind by a second each time.
        """
        return max(spid_at(now_ms + _RESERVE_MS), self._last + (_RESERVE_AHEAD_MS << _MS_SHIFT))

    def next(self, now_ms: int, several: bool) -> int:
        """A new SPID for a message accepted at `now_ms` (Unix time)."""
        self._counter = (self._counter + 1) & _COUNTER_MASK
        low = (self._shard << _COUNTER_BITS | self._counter) << 1 | several
        ms = max(min(now_ms - EPOCH_MS, _LATEST), self._last >> _MS_SHIFT, 0)
        spid = ms << _MS_SHIFT | low
        if spid <= self._last:
            spid = (ms + 1) << _MS_SHIFT | low
        self._last = spid
        return spid
