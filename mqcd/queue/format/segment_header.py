"""A segment's file: its name, which is its number, and its header. Pure.

The header holds epoch, number, first sequence, and the segment before it with the octet where that one ended,
so that segments form a chain which no stray or failed file can join. A file whose header has another number
than its name is no segment: it was renamed to be used again, and its first group never became durable.
"""

from __future__ import annotations

import re
import struct
import zlib

from mqcd.core.errors import DecodeError
from mqcd.core.value import value

MAGIC = b"mqcdseg1"
HEADER_SIZE = 4096
_HEADER = struct.Struct("<8sQQQQQQQI")
_NAME = re.compile(r"(?:(\d{1,19})|ready-\d{1,9})\.wal", re.ASCII)
_COPIES = (0, HEADER_SIZE // 2)
"""Where the header stands in its block: twice, because all of a segment's mail would go with it."""


@value(kw_only=False)
class SegmentHeader:
    """Identity of a segment."""

    epoch: int
    number: int
    first_sequence: int
    previous: int
    """Number of the segment before it in the chain; 0 = none."""
    previous_end: int
    """Octet where that one ended: what lies behind is not part of the journal."""
    created: int
    """ms."""
    spid: int
    """No message of an earlier segment has a greater SPID: a start need not read them all to know."""


def pack(header: SegmentHeader) -> bytes:
    """The header's block."""
    body = _HEADER.pack(
        MAGIC,
        header.epoch,
        header.number,
        header.first_sequence,
        header.previous,
        header.previous_end,
        header.created,
        header.spid,
        0,
    )[:-4]
    copy = body + zlib.crc32(body).to_bytes(4, "little")
    return copy.ljust(HEADER_SIZE // len(_COPIES), b"\0") * len(_COPIES)


def unpack(block: bytes) -> SegmentHeader | None:
    """The header, or None for a file that was never used or whose header was torn.

    A second copy that is of another use counts only if the first does not check. Then the group that wrote
    one of them never became durable and was never acknowledged, or it is the first that is damaged.
    Raises DecodeError for a format version that this program does not know.
    """
    for at in _COPIES:
        header = _unpack_copy(block[at : at + _HEADER.size])
        if header is not None:
            return header
    return None


def _unpack_copy(copy: bytes) -> SegmentHeader | None:
    if len(copy) < _HEADER.size:
        return None
    magic, *fields, crc = _HEADER.unpack(copy)
    if zlib.crc32(copy[:-4]) != crc:
        return None
    if magic != MAGIC:
        raise DecodeError(f"journal format {magic.decode('ascii', 'replace')!r}")
    return SegmentHeader(*fields)


def file_name(number: int) -> str:
    """The name of a segment's file."""
    return f"{number}.wal"


def ready_name(index: int) -> str:
    """The name of a file that was made ahead and belongs to no segment yet."""
    return f"ready-{index}.wal"


def is_file_name(name: str) -> bool:
    """Whether a file of the journal may have this name."""
    return _NAME.fullmatch(name) is not None


def number_in(name: str) -> int | None:
    """The segment that a file's name says, if it says one."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match is not None and match[1] is not None else None
