"""Reading the journal back: from the slots on disk to what lives in each segment.

Recovery, offline readers and the exporter all read segments through here. Promise: every frame that was
durable when the journal was last written is seen, in order; a torn tail is told from damage by the
synced sequence that later frames and the MANIFEST carry; damage is reported and passed over, never a
reason to stop.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import (
    ALIVE,
    BEGUN,
    HEADER_SIZE,
    IN_SPOOL,
    MAGIC,
    Accepted,
    Header,
    Kind,
    Locator,
    Take,
    claimed_header,
    frame_length,
    may_follow,
    read_begun,
    read_header,
    read_take,
)
from mqcd.queue.format.record import Glance, key_of
from mqcd.queue.format.transitions import VERB_OF, entries, submissions
from mqcd.queue.wal.segments import JournalEntry, Segment

Key = tuple[int, int]
"""SPID and QID of a recipient."""
Place = tuple[int, int]
"""Segment and ordinal of an entry. Later ones are greater."""
_NOWHERE = (0, 0)
EVER = 1 << 62
"""A time after all others, ms."""


class Frame(NamedTuple):
    """One frame that checks."""

    header: Header
    body: memoryview
    body_at: int
    """Octet of the segment where the body begins."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a segment that does not check although it was durable."""

    path: Path
    segment: int
    start: int
    end: int
    ordinal: int
    """Homes of this segment below it were made before."""
    until: int
    """All of it was written at this time at the latest, ms."""
    begins: bool
    """Whether an attempt may have begun in it."""
    records: int
    """How many it tells of, at most."""


class Walk:
    """The frames of one segment in order; `end`, `sequence`, `ordinal` and `damage` grow with it."""

    def __init__(self, window: Window, segment: Segment, *, bound: int | None) -> None:
        """`bound` is where the segment is known to end; None for the last one, whose tail may be torn."""
        self._window = window
        self._segment = segment
        self._bound = bound
        self.end = segment_header.HEADER_SIZE
        self.sequence = segment.header.first_sequence
        self.ordinal = 0
        self.damage: list[Damage] = []

    def __iter__(self) -> Iterator[Frame]:
        window, salt = self._window, self._segment.salt
        limit = self._bound if self._bound is not None else window.size
        offset = segment_header.HEADER_SIZE
        while offset < limit:
            header = self._header_at(offset, salt)
            if header is None:
                found = self._next_durable(offset, limit)
                if found is None:
                    break
                following = self._header_at(found, salt)
                # Where a server writes, what was read here may be older than what was found.
                window.forget()
                if self._header_at(offset, salt) is not None:
                    continue
                self._note_damage(offset, found, following)
                offset = found
                continue
            start = offset + HEADER_SIZE
            offset = self.end = start + header.length
            self.sequence = max(self.sequence, header.sequence + header.entries)
            self.ordinal = header.ordinal + header.entries
            base = window.base
            yield Frame(header, memoryview(window.data)[start - base : offset - base], start)
        self._end_at(offset, limit)

    def _end_at(self, offset: int, limit: int) -> None:
        """No further frame checks: of the newest segment the MANIFEST may know that there were more."""
        segment = self._segment
        if self._bound is not None:
            lost = offset < limit
        else:
            lost = self.sequence < segment.must_reach or limit < segment.must_hold
        if lost:
            self._note_damage(offset, max(limit, segment.must_hold), None)

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
        begins = following is None or not self._is_harmless(start, end)
        sequence = following.sequence if following is not None else self._segment.must_reach
        records = max(1, sequence - self.sequence)
        segment = self._segment
        self.damage.append(
            Damage(segment.path, segment.number, start, end, self.ordinal, until, begins, records)
        )

    def _is_harmless(self, start: int, end: int) -> bool:
        """Whether a stretch is one frame whose header is as it should be here, and tells of no attempt."""
        window = self._window
        at = window.reach(start, HEADER_SIZE)
        length = frame_length(window.data, at)
        if length is None or start + length != end:
            return False
        header = claimed_header(window.data, at)
        if header is None or header.kind is Kind.BEGUN or header.ordinal != self.ordinal:
            return False
        # Without entries it names the sequence behind its own; one of an older version took none.
        return header.sequence in (self.sequence, self.sequence + (not header.entries))

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


def walk_through(
    disk: Disk, segment: Segment, apply: Callable[[Segment, Frame], None], *, last: bool
) -> list[Damage]:
    """Hand each frame of a segment to `apply`, whose DecodeError counts as damage; returns all damage.

    Sets the segment's end and next ordinal. Only the `last` one may end before its known end. Raises OSError.
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
                        frame.body_at,
                        header.ordinal,
                        header.at,
                        header.kind is Kind.BEGUN,
                        max(1, header.entries),
                    )
                )
    finally:
        disk.close(fd)
    segment.end, segment.next_ordinal = walk.end, walk.ordinal
    return damage + walk.damage


@dataclass(frozen=True, slots=True)
class Tail:
    """What a start must know of the newest segment before it may write the next one."""

    sequence: int
    """The first that is free."""
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
    segment.end, segment.next_ordinal = walk.end, walk.ordinal
    return Tail(walk.sequence, spid, at)


def spid_in(part: Accepted) -> int:
    """The SPID of an accepted message. Raises DecodeError."""
    try:
        return int(part.lines[:16], 16)
    except ValueError as error:
        raise DecodeError(f"an accepted message without a SPID: {part.lines[:40]!r}") from error


@dataclass(slots=True)
class _Raw:
    """An entry not yet looked at."""

    offset: int
    line: bytes
    """Kept as it is met, so that no segment's octets need to stay in memory."""
    content: Locator
    begun: bool


class Replay:
    """What the frames of a chain of segments amount to."""

    def __init__(self) -> None:
        self._homes: dict[int, dict[int, _Raw]] = {}
        self.takes: dict[str, Take] = {}
        """Last state of each cluster that was taken from."""
        self.totals: dict[int, Counter[Verb]] = {}
        """Transitions by segment."""
        self.damage: list[Damage] = []
        self.moved: dict[Key, Place] = {}
        """Recipients that came from a home of which no frame tells, and where they went or ended. It was made
        by a frame that is lost, and whatever home they seem to have from before has been given up."""
        self.tried: set[Key] = set()
        """Recipients whose attempt began at such a home."""

    def read(self, disk: Disk, segment: Segment, *, last: bool) -> None:
        """Take one segment in; the oldest comes first. Sets the segment's end and next ordinal."""
        self._homes[segment.number] = {}
        self.totals[segment.number] = Counter()
        self.damage += walk_through(disk, segment, self._apply, last=last)

    def _apply(self, segment: Segment, frame: Frame) -> None:
        header, body = frame.header, frame.body
        if header.kind is Kind.BEGUN:
            self._mark_begun(segment, frame)
            return
        if header.kind is Kind.TAKE:
            take = read_take(body)[0]
            self.takes[take.cluster] = take
        accepted, offset = submissions(header.kind, body)
        ordinal = header.ordinal
        for part in accepted:
            ordinal = self._accept(segment, frame, part, ordinal)
        here, totals = self._homes[segment.number], self.totals[segment.number]
        for at, frame_entry in entries(header.kind, body, offset, header.ordinal + header.entries - ordinal):
            homes = self._homes.get(frame_entry.old_segment)
            if homes is not None and homes.pop(frame_entry.old_ordinal, None) is None:
                self.moved[key_of(frame_entry.line)] = segment.number, ordinal
            if frame_entry.flags & ALIVE:
                begun = bool(frame_entry.flags & BEGUN)
                here[ordinal] = _Raw(frame.body_at + at, frame_entry.line, frame_entry.content, begun)
            verb = VERB_OF.get(frame_entry.mark)
            if verb is not None:
                totals[verb] += 1
            ordinal += 1

    def _mark_begun(self, segment: Segment, frame: Frame) -> None:
        for begun in read_begun(frame.body, frame.header.entries)[1]:
            homes = self._homes.get(begun.segment)
            if homes is None:
                continue
            raw = homes.get(begun.ordinal)
            if raw is not None:
                raw.begun = True
            else:
                self.tried.add((begun.spid, begun.qid))
        self.totals[segment.number][Verb.ATTEMPTED] += frame.header.entries

    def _accept(self, segment: Segment, frame: Frame, part: Accepted, ordinal: int) -> int:
        content = IN_SPOOL
        if part.inline:
            content = Locator(segment.number, frame.body_at + part.content_at, part.size)
        at = frame.body_at + part.lines_at
        here = self._homes[segment.number]
        for line in part.lines.splitlines(keepends=True):
            here[ordinal] = _Raw(at, line, content, False)
            at += len(line)
            ordinal += 1
            self.totals[segment.number][Verb.ACCEPTED] += 1
        return ordinal

    def settle_in(self, segments: dict[int, Segment]) -> Iterator[JournalEntry]:
        """Make every unfinished recipient an entry of its segment, and give them in order.

        Each comes with its record line in `raw`; who keeps many entries lets go of it. A line that is none
        is noted as damage. After damage a home that a lost frame has given up is left out, and who may have
        been tried in one counts as begun.
        """
        lost = tuple(self.damage)
        for number, homes in self._homes.items():
            segment = segments[number]
            for ordinal, raw in homes.items():
                try:
                    glance = Glance(raw.line)
                except DecodeError:
                    end = raw.offset + len(raw.line)
                    path = segment.path
                    self.damage.append(Damage(path, number, raw.offset, end, ordinal, EVER, False, 1))
                    continue
                if lost and self._has_moved(glance, (number, ordinal)):
                    continue
                entry = JournalEntry(
                    spid=glance.spid,
                    qid=glance.qid,
                    area=glance.area,
                    due=glance.due,
                    size=glance.size,
                    received=glance.received,
                    content=raw.content,
                    linked=glance.linked,
                    domain=glance.domain,
                )
                entry.begun = raw.begun or bool(lost and self._in_doubt(glance, (number, ordinal), lost))
                entry.raw = raw.line
                segment.settle_in(entry, ordinal, raw.offset, len(raw.line))
                lender = segments.get(raw.content.segment)
                if lender is not None and lender is not segment:
                    lender.borrowers.add(entry)
                yield entry

    def _has_moved(self, glance: Glance, home: Place) -> bool:
        return home < self.moved.get((glance.spid, glance.qid), _NOWHERE)

    def _in_doubt(self, glance: Glance, home: Place, lost: Sequence[Damage]) -> bool:
        """Whether an attempt may have begun, and perhaps ended, in a stretch that is lost: of whoever waited
        then, was due, and has not been heard of since."""
        if glance.area is Area.BOUNCES:
            return False
        if (glance.spid, glance.qid) in self.tried:
            return True
        return any(
            each.begins and home < (each.segment, each.ordinal) and glance.due <= each.until for each in lost
        )
