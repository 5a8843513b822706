"""Records of idempotency keys, in memory and in key files. Pure.

    record   name of the key (16), digest of its message (8), SPID (u64), time of acceptance (u32, s),
             number of its segment (in memory) or CRC of the 36 octets before (in files) (u32)

A key file is a header, records sorted by name, and an index. Names are hashes, so the index is an array:
which record is the first of each part of the range of names; and the last number is that of all records.

    header   magic (16), records (u64), bits of the index (u32), CRC of header and index (u32), zeros to 40
    index    u32 for each of 2 to the power of `bits` parts, and one more

Decoders raise only DecodeError.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.idempotency import NAME_OCTETS, Used

MAGIC = b"mqcd-keys 1\n".ljust(16, b"\0")
_RECORD = struct.Struct("<16s8sQII")
RECORD = _RECORD.size
LATEST = 0xFFFFFFFF
"""The latest time that a record can hold, s: in 2106."""
_LAST = struct.Struct("<I")
_USE = struct.Struct("<QII")
_AT = struct.Struct("<32xI4x")
_LAST_OFFSET = 36
_SOUND = 0x2144DF1C
"""The CRC of any octets that their own CRC follows."""
_HEADER = struct.Struct("<16sQII8x")
HEADER = _HEADER.size
_PART = 32
"""Records of one part of the index, about."""


def pack(name: bytes, digest: bytes, spid: int, at: int, segment: int) -> bytes:
    """A record as memory has it."""
    return _RECORD.pack(name, digest, spid, at, segment)


def pack_use(key: bytes, spid: int, at: int, segment: int) -> bytes:
    """The same; `key`: name and digest, `at`: ms."""
    return key + _USE.pack(spid, min(at // 1000, LATEST), segment)


def times_of(records: bytes) -> list[int]:
    """When the message of each record was accepted, s."""
    return [at for (at,) in _AT.iter_unpack(records)]


def find(records: bytes | bytearray, name: bytes) -> int:
    """The offset of the last record of a name; -1 without one."""
    at = records.rfind(name)
    while at >= 0 and at % RECORD:
        at = records.rfind(name, 0, at + NAME_OCTETS - 1)
    return at


def used_at(records: bytes | bytearray, offset: int) -> Used:
    """What a record says."""
    _, digest, spid, at, _ = _RECORD.unpack_from(records, offset)
    return Used(spid, digest, at)


def sealed(record: bytes) -> bytes:
    """A record of memory as files have it: its checksum stands where its segment stood."""
    return record[:_LAST_OFFSET] + _LAST.pack(zlib.crc32(record[:_LAST_OFFSET]))


def sound(record: bytes) -> bool:
    """Whether a record of a file checks."""
    return zlib.crc32(record) == _SOUND


def split(records: bytes | bytearray) -> Iterable[bytes]:
    """The records, one by one."""
    return (bytes(records[start : start + RECORD]) for start in range(0, len(records), RECORD))


class Index(NamedTuple):
    """Where the records of each part of the range of names begin."""

    shift: int
    """Bits by which a name's first four octets, big-endian, are shifted to give the number of its part."""
    starts: array[int]

    def part(self, top: int) -> tuple[int, int]:
        """First record, and the one behind the last, that a name may be; `top`: see `top_of`."""
        part = top >> self.shift
        return self.starts[part], self.starts[part + 1]


def top_of(name: bytes) -> int:
    """What an index goes by."""
    return int.from_bytes(name[:4], "big")


def encode_file(records: Sequence[bytes]) -> list[bytes]:
    """The octets of a key file; `records` are sealed and sorted."""
    bits = max(len(records) // _PART, 1).bit_length() - 1
    shift = 32 - bits
    firsts = ((part << shift).to_bytes(4, "big") for part in range(1 << bits))
    starts = array("I", [*(bisect_left(records, first) for first in firsts), len(records)])
    index = _little(starts).tobytes()
    head = _HEADER.pack(MAGIC, len(records), bits, 0)
    crc = zlib.crc32(index, zlib.crc32(head))
    return [_HEADER.pack(MAGIC, len(records), bits, crc), b"".join(records), index]


def index_size(header: bytes) -> tuple[int, int]:
    """From the header of a key file: its records, and the octets of its index. Raises DecodeError."""
    try:
        magic, records, bits, _ = _HEADER.unpack(header)
    except struct.error as error:
        raise DecodeError("a key file that ends within its header") from error
    if magic != MAGIC or bits > 24:
        raise DecodeError("not a key file, or one of a version not known here")
    return records, 4 * ((1 << bits) + 1)


def records_of(data: bytes) -> Iterable[bytes]:
    """The records of a key file's octets, as far as they go. Raises DecodeError."""
    count, _ = index_size(data[:HEADER])
    end = min(HEADER + count * RECORD, len(data) - (len(data) - HEADER) % RECORD)
    return (data[start : start + RECORD] for start in range(HEADER, end, RECORD))


def decode_index(header: bytes, octets: bytes) -> Index:
    """The index of a key file. Raises DecodeError."""
    records, size = index_size(header)
    _, _, bits, crc = _HEADER.unpack(header)
    if crc != zlib.crc32(octets, zlib.crc32(_HEADER.pack(MAGIC, records, bits, 0))) or len(octets) != size:
        raise DecodeError("the index of a key file does not check")
    starts = array("I")
    starts.frombytes(octets)
    return Index(32 - bits, _little(starts))


def _little(numbers: array[int]) -> array[int]:
    """Numbers of this machine as little-endian ones, and back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
