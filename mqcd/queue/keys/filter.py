"""Which names the key files may hold: a Bloom filter. Names are hashes, so it needs no hash of its own.

One look at memory says of nearly every new key that no file holds it, however many files there are. Bits
cannot be taken out one by one: those of an earlier time go together, once all their keys are too old. With
1,000,000 names in two megabytes it says of one new key in nine that a file may hold it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

_OCTETS = 1 << 21
_BITS = (0x11, 0x22, 0x44, 0x88)
"""By the last two bits of a number: its bits in an octet. The lower half is of now, the upper of earlier."""
_LATER = bytes((octet & 0xF) << 4 for octet in range(256))
"""What is of now becomes of earlier, and what was of earlier is forgotten."""


class Filter:
    """Of the files of one shard."""

    __slots__ = ("_earlier", "_newest", "_octets")

    def __init__(self) -> None:
        self._octets = bytearray()
        """None before the first name: most queues have no key files."""
        self._newest = -1
        """The latest use among those of now, s; -1 without one."""
        self._earlier = -1
        """The same of those of earlier."""

    def add(self, prints: Iterable[int], newest: int) -> None:
        """Names by their last four octets as numbers of this machine; `newest`: their latest use, s."""
        octets = self._octets = self._octets or bytearray(_OCTETS)
        for each in prints:
            octets[each >> 2 & _OCTETS - 1] |= _BITS[each & 3] & 0xF
        self._newest = max(self._newest, newest)

    def perhaps(self, name: bytes) -> bool:
        """Whether a file may hold it. There has been an `add`."""
        number = int.from_bytes(name[12:], sys.byteorder)
        return self._octets[number >> 2 & _OCTETS - 1] & _BITS[number & 3] != 0

    def expire(self, since: int) -> None:
        """Forget names of earlier if all their uses are of before this time, s."""
        if self._newest >= 0 and self._earlier < since:
            self._octets = self._octets.translate(_LATER)
            self._earlier, self._newest = self._newest, -1
