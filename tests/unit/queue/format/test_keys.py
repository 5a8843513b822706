"""Records of idempotency keys: packed, found, and written to files that check."""

from __future__ import annotations

import hashlib
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.idempotency import Used
from mqcd.queue.format import keys
from mqcd.queue.format.keys import HEADER, RECORD

DIGEST = b"digest--"


def name(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def packed(number: int, segment: int = 7) -> bytes:
    return keys.pack(name(number), DIGEST, number, 1000 + number, segment)


def segments(records: bytes | bytearray) -> list[int]:
    """In memory they stand at the end of each record."""
    return [number for (number,) in struct.iter_unpack("<36xI", records)]


def file_of(count: int) -> bytes:
    return b"".join(keys.encode_file(sorted(keys.sealed(packed(number)) for number in range(count))))


def test_a_record_says_what_was_packed() -> None:
    records = packed(1) + packed(2)
    at = keys.find(records, name(2))
    assert at == RECORD
    assert keys.used_at(records, at) == Used(2, DIGEST, 1002)
    assert (segments(records), keys.times_of(records)) == ([7, 7], [1001, 1002])


def test_a_name_across_two_records_is_not_found() -> None:
    across = packed(1)[30:] + packed(2)[:6]
    assert len(across) == 16
    assert keys.find(packed(1) + packed(2), across) == -1


def test_of_two_uses_the_later_record_is_found() -> None:
    later = keys.pack(name(1), DIGEST, 9, 5000, 8)
    records = packed(1) + later
    assert keys.used_at(records, keys.find(records, name(1))).spid == 9


@pytest.mark.parametrize("count", [1, 2, 31, 64, 1000])
def test_the_index_finds_each_record_of_a_file(count: int) -> None:
    data = file_of(count)
    records, size = keys.index_size(data[:HEADER])
    assert records == count
    index = keys.decode_index(data[:HEADER], data[-size:])
    whole = data[HEADER : HEADER + count * RECORD]
    for number in range(count):
        first, last = index.part(keys.top_of(name(number)))
        assert keys.find(whole[first * RECORD : last * RECORD], name(number)) >= 0
    assert all(map(keys.sound, keys.records_of(data)))


def test_a_changed_record_does_not_check() -> None:
    record = bytearray(keys.sealed(packed(1)))
    record[20] ^= 1
    assert not keys.sound(bytes(record))


@given(st.integers(0, HEADER + 200 * RECORD + 16), st.integers(1, 255))
def test_a_changed_file_is_read_or_refused(at: int, change: int) -> None:
    data = bytearray(file_of(200))
    at %= len(data)
    data[at] ^= change
    octets = bytes(data)
    in_records = HEADER <= at < HEADER + 200 * RECORD
    with suppress(DecodeError):
        count, size = keys.index_size(octets[:HEADER])
        keys.decode_index(octets[:HEADER], octets[HEADER + count * RECORD :][:size])
        assert in_records or HEADER - 8 <= at < HEADER
    if in_records:
        assert sum(map(keys.sound, keys.records_of(octets))) == 199


@given(st.binary(max_size=200))
def test_any_octets_are_read_or_refused(octets: bytes) -> None:
    with suppress(DecodeError):
        keys.index_size(octets[:HEADER])
        list(keys.records_of(octets))
