"""Journal slots: fixed files that segments use in turn, and the header that says which one it is. Pure.

Only the header names the segment: epoch, number, first sequence, and the segment before it with the
octet where that one ended, so that segments form a chain which no stray or failed slot can join.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from mqcd.core.errors import DecodeError

MAGIC = b"mqcdseg1"
HEADER_SIZE = 4096
_HEADER = struct.Struct("<8sQQQQQQQI")
_COPIES = (0, HEADER_SIZE // 2)
"""Where the header stands in its block: twice, because all of a segment's mail would go with it."""


@dataclass(frozen=True, slots=True)
class SlotHeader:
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


def pack(header: SlotHeader) -> bytes:
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


def unpack(block: bytes) -> SlotHeader | None:
    """The header, or None for a slot that was never used or whose header was torn.

    A second copy that is of another use counts only if the first does not check. Then the group that wrote
    one of them never became durable, and nobody was told of it, or it is the first that is damaged.
    Raises DecodeError for a format version that this program does not know.
    """
    for at in _COPIES:
        header = _unpack_copy(block[at : at + _HEADER.size])
        if header is not None:
            return header
    return None


def _unpack_copy(copy: bytes) -> SlotHeader | None:
    if len(copy) < _HEADER.size:
        return None
    magic, *fields, crc = _HEADER.unpack(copy)
    if zlib.crc32(copy[:-4]) != crc:
        return None
    if magic != MAGIC:
        raise DecodeError(f"journal format {magic.decode('ascii', 'replace')!r}")
    return SlotHeader(*fields)


def slot_name(index: int) -> str:
    """The file name of a slot."""
    return f"{index:02d}"
