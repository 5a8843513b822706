"""Journal frames: how every change of the queue is written down. Pure.

    header   magic, length of the body, CRC, kind, number of entries, first ordinal, first sequence,
             synced sequence, time (ms)
    body     by kind:

| kind | body |
|---|---|
| ACCEPT | one submission; its record lines are entries, and so are the begins of attempts |
| REPORT | number of submissions, the submissions, then entries |
| BEGUN | destination, then begun entries |
| TAKE | the cluster's new state (`Take`), then entries |
| REPLACE | the cluster that ends and those in its place (`Replacement`), then entries |
| SETTLE, PARK, CARRY, UNKNOWN | entries |
| NOTE | empty |

The CRC (zlib.crc32) covers epoch and segment number, which are not written, so that a frame of an
earlier use of the file never checks; then the header from the kind on, and the body. A frame holds for
ever or not at all. Each entry has a sequence and an ordinal of its own. Of an entry that is ALIVE, and of a
record line of a submission, (segment, ordinal) is the record's location, until a later entry names it as the
old one. The entries of a REPLACE frame are not alive: their records are in the clusters that it names.
A frame without entries has a sequence too, and its header names the one behind it: so the sequence that a
later frame knows to be synced covers it as any other. (Such frames of older versions took none.)

Decoders raise only DecodeError.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from mqcd.core.errors import DecodeError

Item = TypeVar("Item")

MAGIC = b"mqF\x01"
_HEADER = struct.Struct("<4sIIB3xIIQQQ")
HEADER_SIZE = _HEADER.size
_BEGINNING = struct.Struct("<4sI")
_START = struct.Struct("<4sII")
_CHECKED = struct.Struct("<B3xIIQQQ")
"""The two parts of a header: the checksum begins with the second."""
_CHECKED_FROM = _START.size
_SALT = struct.Struct("<QQ")
_SUBMISSION = struct.Struct("<IIIBxH")
_ENTRY = struct.Struct("<BBHHIIIII")
_BEGUN = struct.Struct("<IIQIH")
_TAKE = struct.Struct("<HQIQ")
_REPLACEMENT = struct.Struct("<HQI")


class _Number(IntEnum):
    """An enumeration that is often a key: hashed as the number it is, without Enum's detour."""

    __hash__ = int.__hash__


class Kind(_Number):
    """What a frame says."""

    ACCEPT = 1
    TAKE = 2
    BEGUN = 3
    SETTLE = 4
    PARK = 5
    CARRY = 6
    UNKNOWN = 7
    REPORT = 8
    NOTE = 9
    REPLACE = 10
    """A batch has changed records of a cluster: others take its place."""


class Mark(_Number):
    """What an entry says of its recipient."""

    TAKEN = 1
    """Moved here from a cluster."""
    CARRIED = 2
    """Moved here from an older segment."""
    PARKED = 3
    DELIVERED = 4
    DEFERRED = 5
    BOUNCED = 6
    EXPIRED = 7
    REPORTED = 8
    DISCARDED = 9
    UNKNOWN = 10
    HELD = 11
    RELEASED = 12
    REMOVED = 13
    RESTORED = 14
    REDIRECTED = 15
    RESCHEDULED = 16
    PURGED = 17
    """The grace of a removal is over: no event."""


_KINDS = {int(kind): kind for kind in Kind}
_MARKS = {int(mark): mark for mark in Mark}

ALIVE = 1
"""Entry flag: the line is the record's new state, and this entry is its record location."""
BEGUN = 2
"""Entry flag: an attempt is under way."""


class Header(NamedTuple):
    """The header of a frame that checks."""

    kind: Kind
    length: int
    entries: int
    """How many it holds."""
    ordinal: int
    sequence: int
    synced: int
    at: int


class Locator(NamedTuple):
    """Where content lies: in a segment, or, when the segment is no longer live, in the spool."""

    segment: int
    """0 = never was in a segment."""
    offset: int
    length: int


IN_SPOOL = Locator(0, 0, 0)


class Entry(NamedTuple):
    """One recipient's part of a TAKE, SETTLE, PARK, CARRY, UNKNOWN, REPORT or REPLACE frame."""

    mark: Mark
    flags: int
    old_segment: int
    """Segment of the old record location; 0 = it was a cluster line."""
    old_ordinal: int
    content: Locator
    line: bytes
    """The record line: the new one when ALIVE and in REPLACE frames, else the last one."""
    note: bytes = b""
    """The verdict's details, see `mqcd.queue.format.verdict`."""


def salt(epoch: int, segment: int) -> int:
    """What a segment's checksums start from."""
    return zlib.crc32(_SALT.pack(epoch, segment))


def pack_header(
    salted: int,
    kind: int,
    parts: Sequence[bytes],
    count: int,
    ordinal: int,
    sequence: int,
    synced: int,
    at: int,
) -> bytes:
    """The header of a frame whose body is `parts` one after another."""
    checked = _CHECKED.pack(kind, count, ordinal, sequence, synced, at)
    crc = zlib.crc32(checked, salted)
    length = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
        length += len(part)
    return _START.pack(MAGIC, length, crc) + checked


def may_follow(data: bytes | memoryview, offset: int, sequence: int) -> bool:
    """Whether what stands at `offset` could be a frame behind `sequence`: a look at a few fields, which
    spares the checksum of whatever else begins like a frame, such as mail made to."""
    if offset + HEADER_SIZE > len(data):
        return False
    _, _, _, kind, _, _, first, synced, _ = _HEADER.unpack_from(data, offset)
    return bool(0 <= first - sequence < 1 << 32 and synced < first and kind <= max(Kind))


def frame_length(data: bytes | memoryview, offset: int) -> int | None:
    """Octets of the frame that begins at `offset`, if one does: nothing is checked but its first field."""
    if offset + HEADER_SIZE > len(data):
        return None
    magic, length = _BEGINNING.unpack_from(data, offset)
    return HEADER_SIZE + int(length) if magic == MAGIC else None


def read_header(data: bytes | memoryview, offset: int, salted: int) -> Header | None:
    """The header at `offset` if a whole frame that checks stands there, else None."""
    if offset + HEADER_SIZE > len(data):
        return None
    magic, length, crc, kind, count, ordinal, sequence, synced, at = _HEADER.unpack_from(data, offset)
    start = offset + HEADER_SIZE
    if magic != MAGIC or start + length > len(data):
        return None
    view = memoryview(data)
    if zlib.crc32(view[offset + _CHECKED_FROM : start + length], salted) != crc:
        return None
    known = _KINDS.get(kind)
    return Header(known, length, count, ordinal, sequence, synced, at) if known is not None else None


_INLINE = 1
"""Submission flag: its content lies in the frame."""
_ATTEMPTED = 2
"""Submission flag: a first attempt begins with the acceptance."""
_KEYED = 4
"""Submission flag: an idempotency key follows."""
KEY_OCTETS = 24
"""A key: its name, then its digest."""


def pack_submission(
    lines: bytes,
    content: bytes | None,
    spooled: int,
    memo: bytes = b"",
    *,
    attempted: bool = False,
    key: bytes = b"",
) -> list[bytes]:
    """One accepted message: its record lines, its key, its content unless it lies in the spool, and its memo.

    With `attempted` an attempt for all its recipients begins in this moment, and the frame counts two entries
    for each: the acceptances, then the begins.
    """
    flags = _ATTEMPTED if attempted else 0
    if key:
        flags |= _KEYED
        lines += key
    if content is None:
        return [_SUBMISSION.pack(len(lines), 0, spooled, flags, len(memo)) + lines + memo]
    head = _SUBMISSION.pack(len(lines), len(content), len(content), flags | _INLINE, len(memo)) + lines
    return [head, content, memo] if memo else [head, content]


SUBMISSION_HEAD = _SUBMISSION.size


class Accepted(NamedTuple):
    """One message within an ACCEPT or REPORT frame; offsets are within the body."""

    lines_at: int
    lines: bytes
    content_at: int
    size: int
    inline: bool
    memo: bytes
    """What only events have: fields of `record.join`."""
    attempted: bool
    """Whether a first attempt begins with the acceptance."""
    key: bytes
    """Name and digest of its idempotency key; b"" without."""


def read_submission(body: memoryview, offset: int) -> tuple[Accepted, int]:
    """The submission at `offset` of a body, and where it ends."""
    try:
        lines, inline, size, flags, memo = _SUBMISSION.unpack_from(body, offset)
    except struct.error as error:
        raise DecodeError("frame ends within a submission's head") from error
    at = offset + SUBMISSION_HEAD
    after = at + lines + inline
    end = after + memo
    keyed = KEY_OCTETS if flags & _KEYED else 0
    if end > len(body) or keyed > lines:
        raise DecodeError("frame ends within a submission")
    content_at = at + lines
    accepted = Accepted(
        at,
        bytes(body[at : content_at - keyed]),
        content_at,
        size,
        bool(flags & _INLINE),
        bytes(body[after:end]),
        bool(flags & _ATTEMPTED),
        bytes(body[content_at - keyed : content_at]),
    )
    return accepted, end


def pack_entry(entry: Entry) -> bytes:
    """One entry."""
    content = entry.content
    return (
        _ENTRY.pack(
            entry.mark,
            entry.flags,
            len(entry.line),
            len(entry.note),
            entry.old_segment,
            entry.old_ordinal,
            content.segment,
            content.offset,
            content.length,
        )
        + entry.line
        + entry.note
    )


ENTRY_HEAD = _ENTRY.size


def read_entries(body: memoryview, offset: int, count: int) -> Iterator[tuple[int, Entry]]:
    """`count` entries from `offset` of a body on, each with where its line stands in the body."""
    for _ in range(count):
        try:
            mark, flags, line, note, old, ordinal, segment, at, length = _ENTRY.unpack_from(body, offset)
            kind = _MARKS[mark]
        except (struct.error, KeyError) as error:
            raise DecodeError(f"no entry at octet {offset} of the frame's body") from error
        start = offset + ENTRY_HEAD
        middle = start + line
        offset = middle + note
        if offset > len(body):
            raise DecodeError("frame ends within an entry")
        yield (
            start,
            Entry(
                kind,
                flags,
                old,
                ordinal,
                Locator(segment, at, length),
                bytes(body[start:middle]),
                bytes(body[middle:offset]),
            ),
        )


class BegunEntry(NamedTuple):
    """An attempt that starts."""

    segment: int
    ordinal: int
    spid: int
    qid: int
    attempt: int
    """Number of the attempt, from 1."""


def pack_begun(destination: str, entries: Sequence[BegunEntry]) -> bytes:
    """Body of a BEGUN frame."""
    name = destination.encode()[:65535]
    packed = [_BEGUN.pack(e.segment, e.ordinal, e.spid, e.qid, min(e.attempt, 65535)) for e in entries]
    return len(name).to_bytes(2, "little") + name + b"".join(packed)


def in_frames(
    items: Sequence[Item], pack: Callable[[Sequence[Item]], bytes], room: int
) -> list[tuple[Sequence[Item], bytes]]:
    """Parts of `items`, in order, with the body that each makes: halved until it fits in `room` octets.

    Only small segments are too small for a whole call; each part is atomic by itself then.
    """
    body = pack(items)
    if len(body) <= room or len(items) < 2:
        return [(items, body)]
    middle = len(items) // 2
    return in_frames(items[:middle], pack, room) + in_frames(items[middle:], pack, room)


def read_begun(body: memoryview, count: int) -> tuple[str, list[BegunEntry]]:
    """Destination and entries of a BEGUN frame's body."""
    start = 2 + int.from_bytes(body[:2], "little")
    if start + count * _BEGUN.size > len(body):
        raise DecodeError("frame ends within a begun entry")
    name = bytes(body[2:start]).decode("utf-8", "replace")
    return name, [BegunEntry(*_BEGUN.unpack_from(body, start + i * _BEGUN.size)) for i in range(count)]


class Take(NamedTuple):
    """What a TAKE frame says of its cluster: its whole new state."""

    cluster: str
    cursor: int
    left: int
    """Records that remain after the cursor."""
    octets: int
    """Sum of their messages' sizes."""


def pack_take(take: Take) -> bytes:
    """Head of a TAKE frame's body."""
    name = take.cluster.encode()
    return _TAKE.pack(len(name), take.cursor, take.left, take.octets) + name


def read_take(body: memoryview) -> tuple[Take, int]:
    """Head of a TAKE frame's body, and where its entries begin."""
    try:
        name, cursor, left, octets = _TAKE.unpack_from(body, 0)
        end = _TAKE.size + name
        if end > len(body):
            raise DecodeError("take frame ends within its cluster's name")
        return Take(bytes(body[_TAKE.size : end]).decode(), cursor, left, octets), end
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError("take frame without its cluster") from error


class Replacement(NamedTuple):
    """What a REPLACE frame says of clusters."""

    cluster: str
    """The one that ends."""
    size: int
    """Octets of its file: all of it has been read."""
    made: bytes
    """Its successors, see `manifest.log.pack_clusters`."""


def pack_replacement(replacement: Replacement) -> bytes:
    """Head of a REPLACE frame's body."""
    name = replacement.cluster.encode()
    head = _REPLACEMENT.pack(len(name), replacement.size, len(replacement.made))
    return head + name + replacement.made


def read_replacement(body: memoryview) -> tuple[Replacement, int]:
    """Head of a REPLACE frame's body, and where its entries begin."""
    try:
        name, size, made = _REPLACEMENT.unpack_from(body, 0)
        middle = _REPLACEMENT.size + name
        end = middle + made
        if end > len(body):
            raise DecodeError("replace frame ends within its head")
        cluster = bytes(body[_REPLACEMENT.size : middle]).decode()
        return Replacement(cluster, size, bytes(body[middle:end])), end
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError("replace frame without its cluster") from error
