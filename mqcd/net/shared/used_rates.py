"""What the processes of several shards have used of the rates that they share.

For each rate one number lies in memory that all have mapped: the time at which all that was used has been
regained. To use some of the rate is to move that time on. Writers take turns by a lock that the kernel
gives up when its holder ends. A place whose time has passed is free for another rate. Where all places for a
name are taken, it shares one of another: then less goes than allowed, never more. Which places those are, a
secret decides: nobody can choose names that crowd out another.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
import weakref
from collections.abc import Iterator
from typing import Self

PLACES = 1 << 14
_MOST = (1 << 64) - 1
"""The largest number; what would be more is that."""
_NEAR = 16
"""Places that one name may take."""
_OCTETS = 16
"""Of a place; so many before the first are the secret."""


def make(places: int = PLACES) -> int:
    """A descriptor to be inherited by all processes; memory is needed for places in use. Raises OSError."""
    fd = os.memfd_create("mqcd-rates", os.MFD_CLOEXEC)
    os.write(fd, secrets.token_bytes(_OCTETS))
    os.ftruncate(fd, _OCTETS + places * _OCTETS)
    return fd


class UsedRates:
    """One process's view. No other copy of the descriptor may be closed while it is used."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        octets = memoryview(mmap.mmap(fd, 0))
        self._secret = bytes(octets[:_OCTETS])
        self._numbers = octets[_OCTETS:].cast("Q")
        self._count = len(self._numbers) // 2

    @classmethod
    def alone(cls, places: int = PLACES) -> Self:
        """One that no other process shares. Raises OSError."""
        made = cls(make(places))
        weakref.finalize(made, os.close, made._fd)
        return made

    def ahead(self, name: str, now: int) -> int:
        """How long it takes until all that was used of a rate is regained, in ns."""
        return max(self._numbers[self._find(self._key(name), now) + 1] - now, 0)

    def use(self, name: str, ns: int, now: int) -> None:
        """Use as much as is regained in `ns`."""
        key = self._key(name)
        numbers = self._numbers
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1)
        try:
            at = self._find(key, now)
            if numbers[at + 1] <= now:
                numbers[at] = key
            numbers[at + 1] = min(max(numbers[at + 1], now) + ns, _MOST)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1)

    def give_back(self, name: str, ns: int) -> None:
        """Undo such a use; what has been counted in another rate's place stays there."""
        key = self._key(name)
        numbers = self._numbers
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1)
        try:
            for at in self._places(key):
                if numbers[at] == key:
                    numbers[at + 1] = max(numbers[at + 1] - ns, 0)
                    break
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1)

    def _find(self, key: int, now: int) -> int:
        """The place of a name; else the first free one, or the one that it shares."""
        numbers = self._numbers
        free = None
        for at in self._places(key):
            if numbers[at] == key:
                return at
            if free is None and numbers[at + 1] <= now:
                free = at
        return next(self._places(key)) if free is None else free

    def _places(self, key: int) -> Iterator[int]:
        return (2 * ((key + step) % self._count) for step in range(_NEAR))

    def _key(self, name: str) -> int:
        digest = hashlib.blake2b(name.encode(), digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "little")
