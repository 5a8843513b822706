"""Frames on their way into the journal: which are refused, which wait, and how they are packed into groups.
Bookkeeping alone.

Requests fail and may be retried; records of events that have happened wait until they are written.

| frame | while the ring is full | a group has failed | more have: the journal is failing |
|---|---|---|---|
| HAPPENED: verdicts, parks, reports, notes | written | waits | waits |
| ACCEPT of the failed group | | refused: a client waits | refused |
| MORE: accepts, takes, replacements | refused | waits | refused, at once from then on |
| BEGUN, CARRY, UNKNOWN; a TAKE in the place of a lost one | written | waits | refused, at once from then on |

`trouble` has what follows on failures.

A group ends before the first frame that its segment does not hold. A segment holds `capacity` octets, and
`max_entries` unfinished recipients (of a group each entry of a frame counts as one); an empty one takes any
single frame, whatever its entries. Nothing of the segment changes: it follows when the group is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from mqcd.core.errors import StoreUnavailable
from mqcd.queue.format.frame import HEADER_SIZE, Kind, pack_header
from mqcd.queue.wal.segments import Segment

log = logging.getLogger(__name__)

ALL = frozenset(Kind)
HAPPENED = frozenset((Kind.SETTLE, Kind.PARK, Kind.REPORT, Kind.NOTE))
"""What must not be refused: it waits for as long as nothing can be written."""
MORE = frozenset((Kind.ACCEPT, Kind.TAKE, Kind.REPLACE))
"""New work: refused while the ring is full (`is_more`)."""
FULL = "the journal is full until older segments have been evacuated"
MAX_GROUP = 8 << 20
"""Octets after which a group is written though more frames wait."""


BROKEN = "memory may differ from the journal after an internal error; only a restart helps"
"""Why a journal takes nothing after an internal error."""


class JournalFull(StoreUnavailable):
    """No segment can begin for new work, and the frame will not be written. Only a group that has failed may
    have written it, but never an accept."""


class Unplaced(StoreUnavailable):
    """An internal error: the frame is durable, memory lacks it, and it counts from the next start on. So the
    files that it names stay."""


Placed = Callable[[Segment, int, int, int], None]
"""Called when a frame is durable: its segment, first ordinal, where its body begins, first sequence."""


class Append:
    """A frame on its way into the journal."""

    __slots__ = (
        "again",
        "at",
        "body",
        "count",
        "failed",
        "future",
        "kind",
        "octets",
        "ordinal",
        "parts",
        "placed",
        "sequence",
    )

    def __init__(
        self,
        kind: Kind,
        parts: list[bytes],
        count: int,
        at: int,
        placed: Placed,
        future: asyncio.Future[None],
        failed: Callable[[], None] | None = None,
        *,
        again: bool = False,
    ) -> None:
        """`failed` is called when it is certain that `placed` will not be, or when `placed` has raised and
        the journal breaks. `again`: it takes the place of one that damage has lost, so it is no new work."""
        self.kind = kind
        self.parts = parts
        self.count = count
        self.at = at
        self.placed = placed
        self.future = future
        self.failed = failed
        self.again = again
        octets = HEADER_SIZE
        for part in parts:
            octets += len(part)
        self.octets = octets
        """Of header and body."""
        self.ordinal: int
        """Where it is written: known once it is, as the two that follow."""
        self.body: int
        self.sequence: int


def is_more(item: Append) -> bool:
    """Whether it is new work. A start cannot evacuate before it has taken again what was lost."""
    return item.kind in MORE and not item.again


def refuse(pending: deque[Append], meant: Callable[[Append], bool], one: Callable[[Append], None]) -> None:
    """Fail what waits and is meant, each by `one`; the others stay in their order.

    Raises the first error of a callback, when all have been refused.
    """
    refused = [item for item in pending if meant(item)]
    kept = [item for item in pending if not meant(item)]
    pending.clear()
    pending.extend(kept)
    if errors := fail_all(refused, one):
        raise errors[0]


def fail_all(items: Iterable[Append], one: Callable[[Append], None]) -> list[Exception]:
    """Fail each by `one`, whatever callbacks raise: that is logged, and returned."""
    errors = []
    for item in items:
        try:
            one(item)
        except Exception as error:
            log.critical("an internal error as a frame of kind %d failed", item.kind, exc_info=True)
            errors.append(error)
    return errors


def fail(item: Append, why: str, cause: BaseException | None = None) -> None:
    """Fail its future: it will not be written. The cause says whether space is missing."""
    _fail(item, StoreUnavailable(why), cause)


def fail_full(item: Append) -> None:
    """Fail its future, with JournalFull: the segment that would hold it cannot begin."""
    _fail(item, JournalFull(FULL), None)


def fail_durable(item: Append) -> None:
    """Fail its future, with Unplaced: it has been written, and memory cannot follow."""
    _fail(item, Unplaced(BROKEN), None)


def _fail(item: Append, error: StoreUnavailable, cause: BaseException | None) -> None:
    try:
        if item.failed is not None:
            item.failed()
    finally:
        if item.kind is Kind.NOTE:
            # No caller waits for it, so its exception would never be retrieved.
            item.future.cancel()
        elif not item.future.done():
            error.__cause__ = cause
            item.future.set_exception(error)


class Group:
    """Frames that are written and synced together, and where their segment stands after them."""

    __slots__ = ("buffers", "end", "frames", "next_ordinal", "next_sequence", "segment", "start")

    def __init__(self, segment: Segment, sequence: int) -> None:
        """An empty one behind the last frame of the segment. `sequence`: of the next entry."""
        self.segment = segment
        self.frames: list[Append] = []
        self.buffers: list[bytes] = []
        """What is written: headers and bodies in turn."""
        self.start = segment.end
        """Octet of the segment where the first frame begins."""
        self.end = segment.end
        """Octet where the last one ends."""
        self.next_ordinal = segment.next_ordinal
        self.next_sequence = sequence


def pack_group(
    pending: deque[Append], segment: Segment, sequence: int, capacity: int, max_entries: int
) -> Group:
    """Move the frames that go into the segment now from `pending` to a group; an error leaves them there.

    The group is empty if the segment does not hold the first frame. `sequence`: of the next entry.
    """
    group = Group(segment, sequence)
    frames, buffers = group.frames, group.buffers
    start, offset, ordinal, synced = group.start, group.end, group.next_ordinal, sequence - 1
    entries = len(segment.entries)
    for frame in pending:
        count = frame.count
        if offset + frame.octets > capacity or (entries and entries + count > max_entries):
            break
        if not count:
            # It takes a sequence, and its header names the one behind that (`format.frame`): else its loss
            # would not show.
            sequence += 1
        frame.ordinal, frame.body, frame.sequence = ordinal, offset + HEADER_SIZE, sequence
        buffers.append(
            pack_header(segment.salt, frame.kind, frame.parts, count, ordinal, sequence, synced, frame.at)
        )
        buffers += frame.parts
        frames.append(frame)
        offset += frame.octets
        ordinal += count
        sequence += count
        if frame.kind is not Kind.BEGUN:
            # The entries of BEGUN are known already.
            entries += count
        if offset - start >= MAX_GROUP:
            break
    for _ in frames:
        pending.popleft()
    group.end, group.next_ordinal, group.next_sequence = offset, ordinal, sequence
    return group
