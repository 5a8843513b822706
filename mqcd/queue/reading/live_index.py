"""Who has their home in the journal, in five octets for each entry of a segment.

Readers of the queue count so: however many recipients the journal holds, they remember only where each
unfinished one's record line stands, and read the lines when they are wanted. (A start needs more of each
recipient, and builds entries instead: `mqcd.queue.wal.replay`.) Damage is noted and passed over.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from mqcd.core.errors import DecodeError, StoreBusy
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import (
    ALIVE,
    BEGUN,
    IN_SPOOL,
    Accepted,
    Kind,
    Locator,
    Take,
    read_begun,
    read_take,
)
from mqcd.queue.format.transitions import entries, submissions
from mqcd.queue.manifest.log import ManifestState
from mqcd.queue.wal.replay import Damage, Frame, walk_through
from mqcd.queue.wal.segments import Segment

MOVED_ON = "the queue has moved on while it was read; try again"
_LINES = 500
"""Lines that are given at a time."""


class Homes:
    """The homes of one segment: an entry's ordinal is its place."""

    __slots__ = ("_begun", "_contents", "_since", "_starts", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._starts = array("I")
        """Octet where the record line of each entry begins; 0 = nobody has their home there."""
        self._begun = bytearray()
        """Whether an attempt had begun, for each entry."""
        self._since = array("I")
        """Ordinals from which on contents lie elsewhere than before: recipients of a message share one."""
        self._contents = array("I")
        """Segment, offset, length of each of these."""

    def __len__(self) -> int:
        return len(self._starts) - self._starts.count(0)

    def settle_in(self, ordinal: int, start: int, begun: bool, content: Locator) -> None:
        """An entry becomes a home. Ordinals only grow: raises DecodeError where they do not."""
        gap = ordinal - len(self._starts)
        # Each entry takes some octets, so there cannot be more of them than there are octets before this one.
        if gap < 0 or ordinal > start:
            raise DecodeError(f"ordinal {ordinal} cannot be here in segment {self.segment.number}")
        self._starts.frombytes(bytes(gap * self._starts.itemsize))
        self._begun += bytes(gap)
        self._starts.append(start)
        self._begun.append(begun)
        if self._contents[-3:].tolist() != list(content):
            self._since.append(ordinal)
            self._contents.extend(content)

    def leave(self, ordinal: int) -> None:
        """A home is given up; there may have been none."""
        if ordinal < len(self._starts):
            self._starts[ordinal] = 0

    def begin(self, ordinal: int) -> None:
        """An attempt for whoever lives there has begun."""
        if ordinal < len(self._begun):
            self._begun[ordinal] = True

    def content(self, ordinal: int) -> Locator:
        """Where the content of whoever lives there lies."""
        at = 3 * (bisect_right(self._since, ordinal) - 1)
        return Locator(*self._contents[at : at + 3])

    def lines(self, disk: Disk) -> Iterator[list[tuple[int, bytes, bool]]]:
        """Ordinal, record line and whether an attempt had begun, of all, some at a time.

        Raises StoreBusy when the slot has been used anew since the segment was read.
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


def open_segment(disk: Disk, segment: Segment) -> int:
    """A descriptor for one who has read the segment before. Raises StoreBusy when it is gone."""
    try:
        return disk.open(segment.path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise StoreBusy(MOVED_ON) from error


def check_same(disk: Disk, fd: int, segment: Segment) -> None:
    """Raises StoreBusy when the slot has been used anew since the segment was read.

    To be asked after octets were read, for a segment's header is written before its frames.
    """
    if segment_header.unpack(disk.pread(fd, segment_header.HEADER_SIZE, 0)) != segment.header:
        raise StoreBusy(MOVED_ON)


class LiveIndex:
    """What the frames of a chain of segments amount to, for one who reads."""

    def __init__(self) -> None:
        self.homes: dict[int, Homes] = {}
        """By segment, the oldest first."""
        self.takes: dict[str, Take] = {}
        """Last state of each cluster that was taken from."""
        self._taken: dict[str, int] = {}
        """By cluster, the sequence behind that frame."""
        self.damage: list[Damage] = []

    def takes_beyond(self, state: ManifestState) -> bool:
        """Whether a cluster was taken from that came to be after this MANIFEST.

        One that it does not list, because it has ended, was taken from before: each edit tells up to which
        sequence all was durable.
        """
        return any(
            sequence > state.sequence for name, sequence in self._taken.items() if name not in state.clusters
        )

    def read(self, disk: Disk, segment: Segment, *, last: bool) -> None:
        """Take one segment in; the oldest comes first. Sets the segment's end."""
        self.homes[segment.number] = Homes(segment)
        self.damage += walk_through(disk, segment, self._apply, last=last)

    def _apply(self, segment: Segment, frame: Frame) -> None:
        header, body = frame.header, frame.body
        if header.kind is Kind.BEGUN:
            for begun in read_begun(body, header.entries)[1]:
                if begun.segment in self.homes:
                    self.homes[begun.segment].begin(begun.ordinal)
            return
        if header.kind is Kind.TAKE:
            take = read_take(body)[0]
            self.takes[take.cluster] = take
            self._taken[take.cluster] = header.sequence + header.entries
        here = self.homes[segment.number]
        accepted, offset = submissions(header.kind, body)
        ordinal = header.ordinal
        for part in accepted:
            ordinal = _accept(here, frame, part, ordinal)
        for at, frame_entry in entries(header.kind, body, offset, header.ordinal + header.entries - ordinal):
            if frame_entry.old_segment in self.homes:
                self.homes[frame_entry.old_segment].leave(frame_entry.old_ordinal)
            if frame_entry.flags & ALIVE:
                here.settle_in(
                    ordinal, frame.body_at + at, bool(frame_entry.flags & BEGUN), frame_entry.content
                )
            ordinal += 1


def _accept(here: Homes, frame: Frame, part: Accepted, ordinal: int) -> int:
    content = IN_SPOOL
    if part.inline:
        content = Locator(here.segment.number, frame.body_at + part.content_at, part.size)
    at = frame.body_at + part.lines_at
    for line in part.lines.splitlines(keepends=True):
        here.settle_in(ordinal, at, False, content)
        at += len(line)
        ordinal += 1
    return ordinal
