"""Which records are located in the journal, in five octets for each entry of a segment.

Readers of the queue keep this index: of each unfinished recipient in the journal they remember only where its
record line stands, and read the line when it is wanted. (Recovery needs more of each recipient, and builds
entries: `mqcd.queue.wal.live_entries`.) Damage is noted and passed over.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.queue.format.frame import Locator
from mqcd.queue.reading.races import check_same, open_segment
from mqcd.queue.wal.fold import Fold
from mqcd.queue.wal.segments import Segment

_LINES = 500
"""Lines in one part of an iteration."""


class SegmentIndex:
    """The records of one segment, by ordinal. See `mqcd.queue.wal.fold.Located`."""

    __slots__ = ("_begun", "_contents", "_last", "_since", "_starts", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._starts = array("I")
        """Octet where the record line of each entry begins; 0 = no record is located there."""
        self._begun = bytearray()
        """Whether an attempt had begun, for each entry."""
        self._since = array("I")
        """Ordinals from which on contents lie elsewhere than before: recipients of a message share one."""
        self._contents = array("I")
        """Segment, offset, length of each of these."""
        self._last: Locator | None = None
        """The last of these."""

    def __len__(self) -> int:
        return len(self._starts) - self._starts.count(0)

    def place(self, ordinal: int, offset: int, line: bytes, content: Locator, begun: bool) -> None:
        """See `Located`. Ordinals only grow: raises DecodeError where they do not."""
        gap = ordinal - len(self._starts)
        # Each entry takes some octets, so there cannot be more of them than there are octets before this one.
        if gap < 0 or ordinal > offset:
            raise DecodeError(f"ordinal {ordinal} cannot be here in segment {self.segment.number}")
        self._starts.frombytes(bytes(gap * self._starts.itemsize))
        self._begun += bytes(gap)
        self._starts.append(offset)
        self._begun.append(begun)
        if content != self._last:
            self._last = content
            self._since.append(ordinal)
            self._contents.extend(content)

    def leave(self, ordinal: int) -> bool:
        starts = self._starts
        if ordinal >= len(starts) or not starts[ordinal]:
            return False
        starts[ordinal] = 0
        return True

    def begin(self, ordinal: int) -> bool:
        if ordinal >= len(self._begun):
            return False
        self._begun[ordinal] = True
        return True

    def content(self, ordinal: int) -> Locator:
        """Where the content of the record at `ordinal` lies."""
        at = 3 * (bisect_right(self._since, ordinal) - 1)
        return Locator(*self._contents[at : at + 3])

    def lines(self, disk: Disk) -> Iterator[list[tuple[int, bytes, bool]]]:
        """Ordinal, record line and whether an attempt had begun, of all, in parts.

        Raises StoreBusy when the file has been reused since the segment was read.
        """
        fd = open_segment(disk, self.segment)
        try:
            window = Window(disk, fd, self.segment.end)
            moves = 0
            part: list[tuple[int, bytes, bool]] = []
            for ordinal, start in enumerate(self._starts):
                if start:
                    line = _line_at(window, start)
                    if window.moves != moves:
                        check_same(disk, fd, self.segment)
                        moves = window.moves
                    part.append((ordinal, line, bool(self._begun[ordinal])))
                    if len(part) == _LINES:
                        yield part
                        part = []
            if part:
                yield part
        finally:
            disk.close(fd)


def _line_at(window: Window, start: int) -> bytes:
    end = window.find(b"\n", start, window.size)
    stop = end + 1 if end >= 0 else window.size
    at = window.reach(start, stop - start)
    return window.data[at : at + stop - start]


class LiveIndex(Fold[SegmentIndex]):
    """What the frames of a chain of segments amount to, for a reader."""

    def open(self, segment: Segment) -> SegmentIndex:
        return SegmentIndex(segment)
