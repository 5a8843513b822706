"""Connections that the processes of several shards share: those of one client, and those to a destination
with a limit below the number of shards.

A token is a lock on one octet of a file in memory that all have open. The kernel gives up the locks of a
process that ends, however it ends, so a limit never shrinks. A process that gives a token back leaves it to
the others for a moment.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable

LEAVE_MS = 250
"""How long a process leaves a token to others after it gave it back."""
_ROOM = 1 << 16
"""Octets for one name."""


def make() -> int:
    """A descriptor to be inherited by all processes. Raises OSError."""
    return os.memfd_create("mqcd-tokens", os.MFD_CLOEXEC)


class SharedTokens:
    """One process's view of them. No other copy of the descriptor may be closed while it is used."""

    def __init__(self, fd: int, processes: int, monotonic: Callable[[], int]) -> None:
        self.processes = processes
        self._fd = fd
        self._monotonic = monotonic
        self._held: set[int] = set()
        self._start = os.getpid()
        self._left: OrderedDict[int, int] = OrderedDict()
        """Tokens that were given back, and when, the oldest first: `take` forgets those past LEAVE_MS."""

    def take(self, name: str, most: int) -> int | None:
        """One of `most` tokens of this name; None while other processes, or this one, hold all."""
        first = zlib.crc32(name.encode()) * _ROOM
        most = min(most, _ROOM)
        self._forget()
        # Not always from the first on: that is a system call for each one which another process holds.
        self._start += 1
        for number in range(self._start, self._start + most):
            token = first + number % most
            if token not in self._held and token not in self._left and self._lock(token):
                self._held.add(token)
                return token
        return None

    def give(self, token: int, *, at_once: bool = False) -> None:
        """Give a token back; `at_once`: not to the others first."""
        self._held.discard(token)
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, token)
        if not at_once:
            self._left[token] = self._monotonic()

    def _forget(self) -> None:
        latest = self._monotonic() - LEAVE_MS
        while self._left and next(iter(self._left.values())) <= latest:
            self._left.popitem(last=False)

    def _lock(self, token: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, token)
        except OSError:
            return False
        return True
