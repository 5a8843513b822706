"""The journal's segments in memory: which are live, what lives in them, which files the next ones use.

A `JournalEntry` is an unfinished recipient whose record location is a frame. Its segment knows it by ordinal;
when it moves or ends, the segment forgets it. A segment also knows the entries of other segments whose
content it still holds. So what a segment must hand on before its file is used again can be read off directly.

`Segment.on` and `JournalEntry.on` alone change a state, by `SEGMENT_TABLE` and by that of `entry_states`;
what the table does not have raises IllegalTransition and changes nothing. How many readers pin a segment and
whether its file has failed are facts of the file, in any state. A RETIRED segment stays in the ring, below
`first_live`, and takes a slot until its file is free.

What changes an entry, on the event loop but for what a start makes:

| field | is changed by |
|---|---|
| `spid`, `qid`, `size`, `received`, `content`, `linked`, `tenant` | nothing |
| `state` | `on` |
| `segment`, `ordinal`, `offset`, `length` | `Segment.place`, which `Entries` and a start call |
| `area`; `domain` | `Entries.rest`; `Writer`, when a batch has changed the record |
| `begun` | `Writer.begin`, before its frame is durable; `Entries.rest`; its maker, if it has begun |
| `due` | `Entries.rest`; of one that a search has popped, it (`requests.search`, `mail`, `passing`); |
| | of a waiting one `Waiting` and its parts, at a start `recovery.replay` |
| `recipient`, `raw` | `Shard.recipient` keeps them; accept and load, where they have them; |
| | they go when it rests, and when it waits after a search that has read it (`requests.passing`, `mail`); |
| | not when a claim gives it up (`Entries.release`) |

What changes the rest: the event loop; of `filled`, and of `fd` with the first group, the thread of the
committer; at a start a thread, before anything else has the ring (`recovery.open`, `wal.chain`, `wal.scan`),
and once more beside the loop: R3 (`recovery.replay`) reads the segments of earlier runs, while new mail goes
to others. It sets their `end`, `next_ordinal`, `entries`, `borrowers` and `totals`, of which the loop reads
`end` alone meanwhile (`Ring.last`): R3 finds it where R2 did.

| field | is changed by |
|---|---|
| `end`, `next_ordinal` | `reach`, which `Journal._committed` and, at a start, `wal.scan` call; `wal.chain` |
| `entries` | `place`, at a start called by `wal.live_entries`; `Entries`, `Shard.evacuated` |
| `borrowers` | `Entries`; at a start `wal.live_entries`; `Shard.evacuated` |
| `fd` | the committer, at a start `recovery.open`; `release_fd` (`Trouble` closes it out of the ring) |
| `filled` | the committer |
| `readers` | `pin` and `unpin`, called by `SegmentContent`, `Shard.raw_line` and the evacuation |
| `failed`; `kept`, `sealed_at` | `Trouble`; `Sealing`, at a start `recovery.open` |
| `must_reach`, `must_hold` | `wal.chain` at a start |
| `spooled`; `totals` | the evacuation; the export, at a start `recovery.replay` |
| `Ring.next_number` | `Ring.add` |
| `Ring.segments` | `Ring.add`; `Trouble` removes one that holds nothing, the evacuation what it emptied |
| `Ring.current`, `fresh` | `Sealing`; `Trouble` leaves the current one |
| `Ring.first_live` | `Shard.evacuated` |
| `Ring.entries` | `Entries`; `Shard.evacuated`; at a start `recovery.replay` |
| `Ring.free` | evacuation and checkpointer add; the journal takes the first |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from pathlib import Path

from mqcd.core.events import Verb
from mqcd.core.model import Area, Recipient
from mqcd.core.states import following
from mqcd.queue.format import filenames as names
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import Locator, salt
from mqcd.queue.wal.entry_states import RESTING, TABLE, Event, State


class SegmentState(Enum):
    """How far a segment has come."""

    OPEN = auto()
    """Frames are appended to it; or it is abandoned, and its last group, which failed, may be truncated."""
    SEALED = auto()
    """It takes no more frames, and where it ends is certain."""
    EXPORTED = auto()
    """Its events are in an event file."""
    RETIRED = auto()
    """Its records and contents are in clusters and spool, or the queue is closed: the last pin frees it."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each frame."""


class SegmentEvent(Enum):
    """What changes the state of a segment."""

    SEAL = auto()
    EXPORT = auto()
    EVACUATE = auto()
    """The evacuation is committed."""
    CLOSE = auto()
    """The queue is closed."""

    __hash__ = object.__hash__


SEGMENT_TABLE: Mapping[SegmentEvent, Mapping[SegmentState, SegmentState]] = {
    SegmentEvent.SEAL: {SegmentState.OPEN: SegmentState.SEALED},
    SegmentEvent.EXPORT: {SegmentState.SEALED: SegmentState.EXPORTED},
    SegmentEvent.EVACUATE: {SegmentState.EXPORTED: SegmentState.RETIRED},
    SegmentEvent.CLOSE: dict.fromkeys(SegmentState, SegmentState.RETIRED),
}
TO_EVACUATE = frozenset((SegmentState.SEALED, SegmentState.EXPORTED))
"""A segment in one of these waits to be evacuated."""


KEPT_BACK = 2
"""Free slots that a running server does not begin for new work: what has happened already may need one,
and the next start needs one to take mail in before anything has been evacuated."""


READY_AHEAD = 2
"""Files that are kept ready for the next segments."""


class JournalEntry:
    """An unfinished recipient that lives in the journal."""

    __slots__ = (
        "area",
        "begun",
        "content",
        "domain",
        "due",
        "length",
        "linked",
        "offset",
        "ordinal",
        "qid",
        "raw",
        "received",
        "recipient",
        "segment",
        "size",
        "spid",
        "state",
        "tenant",
    )

    def __init__(
        self,
        spid: int,
        qid: int,
        area: Area,
        due: int,
        size: int,
        received: int,
        content: Locator,
        linked: bool,
        domain: str,
        tenant: str = "",
    ) -> None:
        self.spid = spid
        self.qid = qid
        self.area = area
        self.due = due
        self.size = size
        self.received = received
        self.content = content
        self.domain = domain
        """As `Recipient.lane_key`; equal ones must be one object, to save memory."""
        self.tenant = tenant
        """As `Envelope.tenant`, and likewise."""
        self.recipient: Recipient | None = None
        """The decoded record while it is kept."""
        self.linked = linked
        """Whether its content has, in the spool, a name for it alone."""
        self.raw = b""
        """Its record line while it is kept."""
        self.state = State.WAITING
        self.begun = False
        self.segment: Segment
        self.ordinal = 0
        self.offset = 0
        self.length = 0

    def __str__(self) -> str:
        return f"{self.spid:016X}/{self.qid}"

    def on(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        self.state = following(TABLE, event, self.state, self)

    @property
    def resting(self) -> bool:
        """Whether nothing is being done with it: it waits, or was passed over."""
        return self.state in RESTING

    @property
    def file(self) -> int:
        """File number of its content in the spool."""
        return names.number(self.spid, self.qid if self.linked else 0)


class Segment:
    """One live segment."""

    __slots__ = (
        "borrowers",
        "end",
        "entries",
        "epoch",
        "failed",
        "fd",
        "filled",
        "header",
        "kept",
        "must_hold",
        "must_reach",
        "next_ordinal",
        "number",
        "path",
        "readers",
        "salt",
        "sealed_at",
        "spooled",
        "state",
        "totals",
    )

    def __init__(self, header: segment_header.SegmentHeader, path: Path) -> None:
        self.header = header
        self.number = header.number
        self.epoch = header.epoch
        self.salt = salt(header.epoch, header.number)
        self.path = path
        self.failed = False
        """Whether a write or sync of its file has failed: then nothing is ever written to it again."""
        self.fd = -1
        self.filled = 0
        """Octets of its file that were written and synced before its frames; the committer's."""
        self.end = segment_header.HEADER_SIZE
        """Where the next frame goes; all before it is durable."""
        self.next_ordinal = 0
        self.must_reach = 0
        """Every sequence below it was durable, or is known to be lost: the next segment says so, or the
        MANIFEST of the newest one, which else says of itself where it ends."""
        self.must_hold = 0
        """Octets that its file is known to have had."""
        self.kept = False
        """Whether it was begun in a slot that new work must not begin."""
        self.state = SegmentState.OPEN
        self.sealed_at = 0
        self.spooled: dict[int, None] = {}
        """File numbers under which an evacuation has put contents into the spool, or tried to."""
        self.readers = 0
        """Pins: the file stays open, and is not used again, while there are any."""
        self.entries: dict[int, JournalEntry] = {}
        self.borrowers: set[JournalEntry] = set()
        """Entries of other segments whose content lies here."""
        self.totals: Counter[Verb] = Counter()

    @property
    def empty(self) -> bool:
        """Whether it never held a durable frame: one of which each frame was lost is not empty."""
        lost = self.must_reach > self.header.first_sequence
        return self.end == segment_header.HEADER_SIZE and not lost

    def __str__(self) -> str:
        return f"segment {self.number}"

    def on(self, event: SegmentEvent) -> None:
        """Change the state. Raises IllegalTransition."""
        self.state = following(SEGMENT_TABLE, event, self.state, self)

    @property
    def retired(self) -> bool:
        """Whether nothing is left in it that only it has."""
        return self.state is SegmentState.RETIRED

    def reach(self, end: int, next_ordinal: int) -> None:
        """Its frames up to `end` are durable."""
        self.end, self.next_ordinal = end, next_ordinal

    def pin(self) -> None:
        """Keep the file open, and from being used again, until `unpin`."""
        self.readers += 1

    def unpin(self) -> int:
        """Take a pin back. Of a retired segment: as `release_fd`; else returns -1."""
        self.readers -= 1
        return self.release_fd() if self.retired else -1

    def release_fd(self) -> int:
        """The descriptor, for the caller to close; -1 while there are pins, or where it is released."""
        if self.readers:
            return -1
        fd, self.fd = self.fd, -1
        return fd

    def place(self, entry: JournalEntry, ordinal: int, offset: int, length: int) -> None:
        """`entry` is recorded in this segment from now on."""
        entry.segment = self
        entry.ordinal = ordinal
        entry.offset = offset
        entry.length = length
        self.entries[ordinal] = entry


class Ring:
    """All segments that have a file, oldest first."""

    def __init__(self, directory: Path, slots: int, first_live: int) -> None:
        self.directory = directory
        self.slots = slots
        self.segments: dict[int, Segment] = {}
        """By number; insertion order is age."""
        self.first_live = first_live
        """Segments below it have been evacuated, though their file may not be free yet."""
        self.next_number = first_live
        self.current: Segment | None = None
        self.fresh = True
        """Whether nothing has been written since the start."""
        self.entries = 0
        """Entries in all segments."""
        self.free: list[Path] = []
        """Files for the next segments, made ahead, or of segments that were evacuated; none has failed. Has
        nothing to do with `free_slots`, `full` and `fill`, which count segments."""
        self._made = 0

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments.values())

    def path_of(self, number: int) -> Path:
        """Where the file of a segment belongs."""
        return self.directory / segment_header.file_name(number)

    def next_ready(self) -> Path | None:
        """A name for a file to be made ahead; None when enough are there."""
        if len(self.free) >= READY_AHEAD or len(self.segments) + len(self.free) >= self.slots:
            return None
        self._made += 1
        return self.directory / segment_header.ready_name(self._made)

    def may_recycle(self, segment: Segment) -> bool:
        """Whether the file of a segment that was evacuated may serve another one.

        Not a file that has failed or is still read, nor one more than the ring has segments.
        """
        enough = len(self.segments) + len(self.free) > self.slots
        return not (segment.failed or segment.readers or enough)

    def add(self, segment: Segment) -> None:
        """Count a segment in."""
        self.segments[segment.number] = segment
        self.next_number = segment.number + 1

    def live(self, number: int) -> Segment | None:
        """The segment if its contents are still to be read from it, else None: they are in the spool."""
        return self.segments.get(number) if number >= self.first_live else None

    @property
    def last(self) -> Segment | None:
        """The newest segment that is not empty."""
        for segment in reversed(self.segments.values()):
            if not segment.empty:
                return segment
        return None

    @property
    def oldest_sealed(self) -> Segment | None:
        """The segment to evacuate next, if it is sealed."""
        for segment in self.segments.values():
            if not segment.retired:
                return segment if segment.state in TO_EVACUATE else None
        return None

    @property
    def free_slots(self) -> int:
        """How many new segments can begin before one must be evacuated."""
        return max(0, self.slots - len(self.segments))

    @property
    def may_begin(self) -> bool:
        """Whether a segment may be begun for new work: mail, and claims from clusters.

        A start may use any of the configured slots for it: it cannot evacuate before it has read what is
        there, and mail shall not wait for that. What it has to record then goes to the spare ones.
        """
        return self.free_slots > (0 if self.fresh else KEPT_BACK)

    @property
    def full(self) -> bool:
        """Whether new work is refused unseen: no segment takes it, and none may be begun for it. Else a frame
        may still be refused, when the current one has no room for it (`Journal._next_group`).

        With KEPT_BACK 2, of a ring that is not fresh:

        | free slots | `may_begin` | `full`, if the current segment is |
        |---|---|---|
        | 3 or more | yes | never |
        | 2 | no | none; a kept one takes new work again, as both kept slots are free beside it |
        | 0 or 1 | no | none, or a kept one; an ordinary one goes on until it has no room |
        """
        if self.current is None:
            return not self.may_begin
        return self.current.kept and self.free_slots < KEPT_BACK

    @property
    def fill(self) -> float:
        """Share of the slots in use, 0 to 1."""
        return 1 - self.free_slots / self.slots
