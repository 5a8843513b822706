"""Reads a file of any length through a window: a bounded part of it is in memory.

To read segments of 64 MB or clusters of any size in memory that does not grow with them, a reader reads
through here. Raises OSError.
"""

from __future__ import annotations

from collections.abc import Iterator

from mqcd.disk.durable import Disk

STEP = 1 << 18
"""Octets that are read at once, unless more are wanted in one piece."""


class Window:
    """A part of an open file, moved along as octets are asked for; it does not close the file."""

    __slots__ = ("_disk", "_fd", "_step", "base", "data", "moves", "size")

    def __init__(self, disk: Disk, fd: int, size: int, step: int = STEP) -> None:
        """`size` octets of the file are read, and none behind them."""
        self._step = step
        self._disk = disk
        self._fd = fd
        self.size = size
        self.base = 0
        """Octet of the file where `data` begins."""
        self.data = b""
        """The part in memory. It is replaced, never changed: views of it stay valid."""
        self.moves = 0
        """How often the file was read."""

    @classmethod
    def over(cls, data: bytes) -> Window:
        """A window over all of `data`, without a file."""
        window = cls(Disk(), -1, len(data))
        window.data = data
        return window

    def reach(self, offset: int, octets: int) -> int:
        """Have `octets` from `offset` on in `data`, fewer only at the end; gives where in it they begin."""
        at = offset - self.base
        end = self.base + len(self.data)
        if at < 0 or (offset + octets > end and end < self.size):
            wanted = max(0, min(max(octets, self._step), self.size - offset))
            self.data = self._disk.pread(self._fd, wanted, offset)
            self.base, at = offset, 0
            self.moves += 1
            if len(self.data) < wanted:
                self.size = offset + len(self.data)
        return at

    def forget(self) -> None:
        if self._fd >= 0:
            self.base, self.data = 0, b""

    def find(self, octets: bytes, start: int, end: int) -> int:
        """The first offset of `octets` between two offsets of the file; -1 = not found."""
        while start + len(octets) <= min(end, self.size):
            at = self.reach(start, len(octets))
            found = self.data.find(octets, at, end - self.base)
            if found >= 0:
                return self.base + found
            # They may begin in this part and end in the next.
            start = max(start, self.base + len(self.data) - len(octets)) + 1
        return -1

    def lines(self, start: int, end: int) -> Iterator[list[bytes]]:
        """The lines between two offsets, without their line feeds, as many at a time as are in memory.

        A last one that has no line feed comes as it is.
        """
        octets = self._step
        while start < min(end, self.size):
            at = self.reach(start, min(octets, end - start))
            stop = min(len(self.data), end - self.base)
            last = self.data.rfind(b"\n", at, stop) + 1
            if not last and self.base + stop < min(end, self.size):
                # A line longer than the window.
                octets *= 2
                continue
            part = self.data[at : last or stop]
            start += len(part)
            yield part.removesuffix(b"\n").split(b"\n")
