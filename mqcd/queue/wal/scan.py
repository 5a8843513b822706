"""Reads segments back: the frames of one in order, and where it ends.

Recovery, offline readers and the export of events read segments through here. Promise: every frame that was
durable when the journal was last written is seen, in order; damage is reported and passed over, never a
reason to stop. What a walk meets at an octet, in a segment whose end is known (the header of the next one has
it), or in the last one:

| at this octet | end known | last segment |
|---|---|---|
| a frame that checks | given | given |
| none, but a later one may follow | damage up to it | damage up to it, if it proves that more was durable |
| none, nor such a later one | damage up to the end | torn tail; damage if the MANIFEST knows of more |
| the end | the walk ends; damage if the next header knows of more | the same, if the MANIFEST does |

A frame proves by its `synced` sequence what was durable when it was written. Up to which sequence a segment
was durable (`must_reach`) the header of the next one knows, of the last one the MANIFEST. This also knows how
long that one's file was (`must_hold`).

Damage at the end of the last segment lies behind its known end, as soon as a start has written the header of
the next one. So a start leaves out one sequence at least behind such an end (`read_tail`): if it is killed
before it has reported the damage, `must_reach` shows it to the next start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mqcd.core.errors import DecodeError
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import (
    HEADER_SIZE,
    MAGIC,
    Accepted,
    Header,
    Kind,
    frame_length,
    may_follow,
    read_header,
)
from mqcd.queue.format.transitions import submissions
from mqcd.queue.wal.segments import Segment

EVER = 1 << 62
"""A time after all others, ms."""


class Frame(NamedTuple):
    """One frame that checks."""

    header: Header
    body: memoryview
    body_at: int
    """Octet of the segment where the body begins."""


@value(kw_only=False)
class Damage:
    """A stretch of a segment that does not check although it was durable."""

    path: Path
    segment: int
    start: int
    end: int
    ordinal: int
    """Entries of this segment below it were placed before."""
    until: int
    """All of it was written at this time at the latest, ms."""
    records: int
    """How many it concerns, at most."""


class Walk:
    """The frames of one segment in order; `end`, `sequence`, `ordinal` and `damage` grow with it."""

    def __init__(self, window: Window, segment: Segment, *, bound: int | None) -> None:
        """`bound` is where the segment is known to end; None for the last one."""
        self._window = window
        self._segment = segment
        self._bound = bound
        self.end = segment_header.HEADER_SIZE
        self.sequence = segment.header.first_sequence
        self.ordinal = 0
        self.damage: list[Damage] = []
        self.short = False
        """Whether the end is damaged; known when the walk has ended."""

    def __iter__(self) -> Iterator[Frame]:
        window, salt = self._window, self._segment.salt
        limit = self._bound if self._bound is not None else window.size
        offset = segment_header.HEADER_SIZE
        while offset < limit:
            header = self._header_at(offset, salt)
            if header is None:
                if (found := self._pass_damage(offset, limit)) is None:
                    break
                offset = found
                continue
            start = offset + HEADER_SIZE
            offset = self.end = start + header.length
            self.sequence = max(self.sequence, header.sequence + header.entries)
            self.ordinal = header.ordinal + header.entries
            base = window.base
            yield Frame(header, memoryview(window.data)[start - base : offset - base], start)
        self._end_at(offset, limit)

    def _pass_damage(self, offset: int, limit: int) -> int | None:
        """No frame checks at `offset`: where to go on if a later one proves that one was durable there.

        Notes the damage. Goes on at `offset` again where a server has written a frame meanwhile: then what
        was read there is older than what was found.
        """
        found = self._next_durable(offset, limit)
        if found is None:
            return None
        salt = self._segment.salt
        following = self._header_at(found, salt)
        self._window.forget()
        if self._header_at(offset, salt) is not None:
            return offset
        self._note_damage(offset, found, following)
        return found

    def _end_at(self, offset: int, limit: int) -> None:
        """No further frame checks from `offset` on."""
        segment = self._segment
        cut_off = limit < segment.must_hold if self._bound is None else offset < limit
        self.short = cut_off or self.sequence < segment.must_reach
        if self.short:
            # Damage behind the known end reaches as far as for the start that met it first.
            end = limit if offset < limit else self._window.size
            self._note_damage(offset, max(end, segment.must_hold), None)

    def _header_at(self, offset: int, salt: int) -> Header | None:
        """The header of the frame at `offset`, which then is whole in the window, or None."""
        window = self._window
        at = window.reach(offset, HEADER_SIZE)
        length = frame_length(window.data, at)
        if length is None or offset + length > window.size:
            return None
        at = window.reach(offset, length)
        return read_header(window.data, at, salt)

    def _note_damage(self, start: int, end: int, following: Header | None) -> None:
        until = following.at if following is not None else EVER
        sequence = following.sequence if following is not None else self._segment.must_reach
        records = max(1, sequence - self.sequence)
        segment = self._segment
        self.damage.append(Damage(segment.path, segment.number, start, end, self.ordinal, until, records))

    def _next_durable(self, offset: int, limit: int) -> int | None:
        """The next frame that proves what stands at `offset` to have been durable, if there is one."""
        window = self._window
        found = window.find(MAGIC, offset + 1, limit)
        while found >= 0:
            at = window.reach(found, HEADER_SIZE)
            if may_follow(window.data, at, self.sequence):
                header = self._header_at(found, self._segment.salt)
                if header is not None and (self._bound is not None or header.synced >= self.sequence):
                    return found
            found = window.find(MAGIC, found + 1, limit)
        return None


def scan(
    disk: Disk, segment: Segment, apply: Callable[[Segment, Frame], None], *, last: bool
) -> list[Damage]:
    """Hand each frame of a segment to `apply`, whose DecodeError counts as damage; returns all damage.

    Sets the segment's end and next ordinal. What lacks of its known end is damage; the `last` one has
    none, see above. Raises OSError.
    """
    damage: list[Damage] = []
    fd = disk.open(segment.path, os.O_RDONLY)
    try:
        walk = Walk(Window(disk, fd, disk.size(fd)), segment, bound=None if last else segment.end)
        for frame in walk:
            try:
                apply(segment, frame)
            except DecodeError:
                start, header = frame.body_at - HEADER_SIZE, frame.header
                damage.append(
                    Damage(
                        segment.path,
                        segment.number,
                        start,
                        frame.body_at + header.length,
                        header.ordinal,
                        header.at,
                        max(1, header.entries),
                    )
                )
    finally:
        disk.close(fd)
    segment.reach(walk.end, walk.ordinal)
    return damage + walk.damage


@value(kw_only=False)
class Tail:
    """What a start must know of the newest segment before it may write the next one."""

    sequence: int
    """The first that is free; of a damaged end one more, so that later starts miss what was there."""
    spid: int
    """Greatest SPID in the journal, or above it."""
    at: int
    """Time of the last frame, ms."""


def read_tail(disk: Disk, segment: Segment) -> Tail:
    """Find where the newest segment ends; sets its end and next ordinal. Raises OSError."""
    spid, at = segment.header.spid, 0
    fd = disk.open(segment.path, os.O_RDONLY)
    try:
        walk = Walk(Window(disk, fd, disk.size(fd)), segment, bound=None)
        for header, body, _ in walk:
            at = max(at, header.at)
            if header.kind in (Kind.ACCEPT, Kind.REPORT):
                with suppress(DecodeError):
                    spid = max([spid, *map(spid_in, submissions(header.kind, body)[0])])
    finally:
        disk.close(fd)
    segment.reach(walk.end, walk.ordinal)
    return Tail(walk.sequence + walk.short, spid, at)


def spid_in(part: Accepted) -> int:
    """The SPID of an accepted message. Raises DecodeError."""
    try:
        return int(part.lines[:16], 16)
    except ValueError as error:
        raise DecodeError(f"an accepted message without a SPID: {part.lines[:40]!r}") from error
