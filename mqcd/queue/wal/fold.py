"""What the frames of a journal amount to: the one place that says where records lie after them.

What happened in them, event by event, `queue.events.lines` says; the verbs of both are those of
`queue.format.transitions`.

`Fold` reads segments, the oldest first, and keeps for each a `Located`: the records whose record location is
there. A frame places records at ordinals of its own segment, gives up older locations, marks locations where
an attempt begins, and moves the cursors of clusters. Recovery and readers differ only in what their `Located`
remember.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from mqcd.core.events import Verb
from mqcd.disk.durable import Disk
from mqcd.queue.format.frame import (
    ALIVE,
    BEGUN,
    IN_SPOOL,
    Accepted,
    BegunEntry,
    Kind,
    Locator,
    Take,
    read_begun,
    read_entries,
    read_replacement,
    read_take,
)
from mqcd.queue.format.transitions import VERB_OF, WITH_ENTRIES, submissions
from mqcd.queue.manifest.log import read_clusters
from mqcd.queue.manifest.state import ClusterState, ManifestState
from mqcd.queue.wal.scan import Damage, Frame, scan
from mqcd.queue.wal.segments import Segment


class Located(Protocol):
    """The records whose location is in one segment."""

    def place(self, ordinal: int, offset: int, line: bytes, content: Locator, begun: bool) -> None:
        """A record's location is here; its line begins at `offset` of the segment. May raise DecodeError."""

    def leave(self, ordinal: int) -> bool:
        """A record location is given up; returns whether there was one."""

    def begin(self, ordinal: int) -> bool:
        """An attempt begins for the record located here; returns whether there is one. No frame begins one at
        a location that has been given up."""


Kept = TypeVar("Kept", bound=Located)


class Fold(ABC, Generic[Kept]):
    """What the frames read so far amount to."""

    def __init__(self) -> None:
        self.located: dict[int, Kept] = {}
        """By segment, the oldest first."""
        self.totals: dict[int, Counter[Verb]] = {}
        """Transitions by segment."""
        self.takes: dict[str, Take] = {}
        """Last state of each cluster that was taken from."""
        self.taken_at: dict[str, int] = {}
        """By cluster, the sequence behind that frame."""
        self.made: dict[str, tuple[int, ClusterState]] = {}
        """Clusters that REPLACE frames have made, each with the sequence behind its frame."""
        self.damage: list[Damage] = []

    def clusters(self, state: ManifestState) -> dict[str, ClusterState]:
        """The clusters of a MANIFEST, and of frames since, each from its effective cursor on."""
        since = {name: made for name, (at, made) in self.made.items() if at > state.replaced}
        return {name: self._furthest(each) for name, each in {**since, **state.clusters}.items()}

    def _furthest(self, cluster: ClusterState) -> ClusterState:
        """Of TAKE frames and the MANIFEST the furthest cursor counts: the last TAKE may be a lost frame, and
        the MANIFEST know what it took."""
        take = self.takes.get(cluster.name)
        if take is None or take.cursor <= cluster.cursor:
            return cluster
        return replace(cluster, cursor=take.cursor, left=take.left, octets=take.octets)

    @abstractmethod
    def open(self, segment: Segment) -> Kept:
        """What is kept of a segment that is about to be read."""

    def keyed(self, segment: Segment, part: Accepted, at: int) -> None:
        """A message was accepted with an idempotency key, at this time, ms."""

    def missed(self, line: bytes, segment: int, ordinal: int) -> None:
        """A record came to this place, or ended in it, from a record location that no frame mentions."""

    def missed_attempt(self, attempt: BegunEntry) -> None:
        """An attempt began at a record location that no frame mentions."""

    def read(self, disk: Disk, segment: Segment, *, last: bool) -> None:
        """Take one segment in. Sets its end and next ordinal. Raises OSError."""
        self.located[segment.number] = self.open(segment)
        self.totals[segment.number] = Counter()
        self.damage += scan(disk, segment, self._apply, last=last)

    def _apply(self, segment: Segment, frame: Frame) -> None:
        """Take one frame in. Raises DecodeError: what came before the error in the frame stays taken in."""
        header = frame.header
        kind, ordinal, offset = header.kind, header.ordinal, 0
        if kind is Kind.ACCEPT or kind is Kind.REPORT:
            ordinal, offset = self._accept(segment, frame)
        elif kind is Kind.BEGUN:
            self._begin(segment, frame)
        elif kind is Kind.TAKE:
            take, offset = read_take(frame.body)
            self._took(frame, take)
        elif kind is Kind.REPLACE:
            replacement, offset = read_replacement(frame.body)
            made = read_clusters(replacement.made)
            # As if all of it had been taken: so it ends as any other.
            self._took(frame, Take(replacement.cluster, replacement.size, 0, 0))
            self.made.update({each.name: (header.sequence + header.entries, each) for each in made})
        if kind in WITH_ENTRIES:
            self._change(segment, frame, ordinal, offset)

    def _took(self, frame: Frame, take: Take) -> None:
        self.takes[take.cluster] = take
        self.taken_at[take.cluster] = frame.header.sequence + frame.header.entries

    def _begin(self, segment: Segment, frame: Frame) -> None:
        for attempt in read_begun(frame.body, frame.header.entries)[1]:
            located = self.located.get(attempt.segment)
            if located is not None and not located.begin(attempt.ordinal):
                self.missed_attempt(attempt)
        self.totals[segment.number][Verb.ATTEMPTED] += frame.header.entries

    def _accept(self, segment: Segment, frame: Frame) -> tuple[int, int]:
        """Take in the messages that a frame accepts; returns ordinal and octet of its first entry."""
        here = self.located[segment.number]
        accepted, offset = submissions(frame.header.kind, frame.body)
        first = ordinal = frame.header.ordinal
        for part in accepted:
            content = IN_SPOOL
            if part.inline:
                content = Locator(segment.number, frame.body_at + part.content_at, part.size)
            at = frame.body_at + part.lines_at
            for line in part.lines.splitlines(keepends=True):
                here.place(ordinal, at, line, content, part.attempted)
                at += len(line)
                ordinal += 1
            if part.key:
                self.keyed(segment, part, frame.header.at)
            if part.attempted:
                # Its frame is an ACCEPT, which has one part alone: these ordinals are all its own.
                self.totals[segment.number][Verb.ATTEMPTED] += ordinal - first
        self.totals[segment.number][Verb.ACCEPTED] += ordinal - first
        return ordinal, offset

    def _change(self, segment: Segment, frame: Frame, ordinal: int, offset: int) -> None:
        """Take in the entries of a frame, from an ordinal and an octet of its body on."""
        header = frame.header
        here, totals = self.located[segment.number], self.totals[segment.number]
        left = header.ordinal + header.entries - ordinal
        for at, entry in read_entries(frame.body, offset, left):
            located = self.located.get(entry.old_segment)
            if located is not None and not located.leave(entry.old_ordinal):
                self.missed(entry.line, segment.number, ordinal)
            if entry.flags & ALIVE:
                begun = bool(entry.flags & BEGUN)
                here.place(ordinal, frame.body_at + at, entry.line, entry.content, begun)
            verb = VERB_OF.get(entry.mark)
            if verb is not None:
                totals[verb] += 1
            ordinal += 1
