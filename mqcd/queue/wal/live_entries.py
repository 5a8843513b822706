"""The unfinished recipients of a journal that is read back, as entries of its segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.queue.format import keys
from mqcd.queue.format.frame import Accepted, BegunEntry, Locator
from mqcd.queue.format.record import Glance, key_of
from mqcd.queue.wal.fold import Fold
from mqcd.queue.wal.scan import EVER, Damage, spid_in
from mqcd.queue.wal.segments import JournalEntry, Segment

Key = tuple[int, int]
"""SPID and QID of a recipient."""
Place = tuple[int, int]
"""Segment and ordinal of an entry. Later ones are greater."""
_NOWHERE = (0, 0)


@dataclass(slots=True)
class _Raw:
    """A record not yet decoded."""

    offset: int
    line: bytes
    """Kept as it is met, so that no segment's octets need to stay in memory."""
    content: Locator
    begun: bool


class _Lines:
    """The record lines of one segment, by ordinal. See `Located`."""

    __slots__ = ("raw",)

    def __init__(self) -> None:
        self.raw: dict[int, _Raw] = {}

    def place(self, ordinal: int, offset: int, line: bytes, content: Locator, begun: bool) -> None:
        self.raw[ordinal] = _Raw(offset, line, content, begun)

    def leave(self, ordinal: int) -> bool:
        return self.raw.pop(ordinal, None) is not None

    def begin(self, ordinal: int) -> bool:
        raw = self.raw.get(ordinal)
        if raw is not None:
            raw.begun = True
        return raw is not None


class LiveEntries(Fold[_Lines]):
    """Reads a chain of segments, then makes every unfinished recipient an entry of its segment."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: dict[Key, Place] = {}
        """Recipients that came from a record location that no frame mentions, and where they went or ended. A
        lost frame made it, and whatever location they seem to have from before has been given up."""
        self.tried: set[Key] = set()
        """Recipients whose attempt began at such a location."""
        self.keys = bytearray()
        """Records of the idempotency keys, as memory has them."""

    def open(self, segment: Segment) -> _Lines:
        """See `Fold`."""
        return _Lines()

    def keyed(self, segment: Segment, part: Accepted, at: int) -> None:
        """See `Fold`."""
        self.keys += keys.pack_use(part.key, spid_in(part), at, segment.number)

    def missed(self, line: bytes, segment: int, ordinal: int) -> None:
        """See `Fold`."""
        self.moved[key_of(line)] = segment, ordinal

    def missed_attempt(self, attempt: BegunEntry) -> None:
        """See `Fold`."""
        self.tried.add((attempt.spid, attempt.qid))

    def entries(self, segments: dict[int, Segment]) -> Iterator[JournalEntry]:
        """Make every unfinished recipient an entry of its segment, and give them in order.

        Each comes with its record line in `raw`; one that keeps many entries drops it. A line that cannot
        be read is damage. After damage a location that a lost frame has given up is left out, and a recipient
        that may have been tried there counts as begun.
        """
        lost = tuple(self.damage)
        for number, lines in self.located.items():
            segment = segments[number]
            for ordinal, raw in lines.raw.items():
                try:
                    # Without its checksum, which the frame's covers: a start would read each line twice. The
                    # line is checked when it is claimed, and when it is to leave its segment.
                    glance = Glance(raw.line)
                except DecodeError:
                    end = raw.offset + len(raw.line)
                    path = segment.path
                    self.damage.append(Damage(path, number, raw.offset, end, ordinal, EVER, 1))
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
                    tenant=glance.tenant,
                )
                entry.begun = raw.begun or bool(lost and self._in_doubt(glance, (number, ordinal), lost))
                entry.raw = raw.line
                segment.place(entry, ordinal, raw.offset, len(raw.line))
                lender = segments.get(raw.content.segment)
                if lender is not None and lender is not segment:
                    lender.borrowers.add(entry)
                yield entry

    def _has_moved(self, glance: Glance, at: Place) -> bool:
        return at < self.moved.get((glance.spid, glance.qid), _NOWHERE)

    def _in_doubt(self, glance: Glance, at: Place, lost: Sequence[Damage]) -> bool:
        """Whether an attempt may have begun, and perhaps ended, in a stretch that is lost: the recipient
        waited then, was due, and does not appear after it."""
        if glance.area is Area.BOUNCES:
            return False
        if (glance.spid, glance.qid) in self.tried:
            return True
        return any(at < (each.segment, each.ordinal) and glance.due <= each.until for each in lost)
