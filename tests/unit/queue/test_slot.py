"""The header of a journal slot."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.queue import slot

u64 = st.integers(0, (1 << 64) - 1)
HEADER = slot.SlotHeader(3, 12, 400, 11, 9000, 1_800_000_000_000, 1 << 60)
USED = 68


@given(st.builds(slot.SlotHeader, u64, u64, u64, u64, u64, u64, u64))
def test_a_header_comes_back_as_it_was(header: slot.SlotHeader) -> None:
    block = slot.pack(header)
    assert len(block) == slot.HEADER_SIZE
    assert slot.unpack(block) == header


def test_a_torn_header_is_none() -> None:
    block = slot.pack(HEADER)
    for length in range(USED):
        assert slot.unpack(block[:length]) is None
        assert slot.unpack(block[:length].ljust(slot.HEADER_SIZE, b"\0")) is None


@given(st.integers(0, USED - 1), st.integers(1, 255))
def test_a_changed_octet_makes_it_none(at: int, change: int) -> None:
    block = bytearray(slot.pack(HEADER))
    block[at] ^= change
    assert slot.unpack(bytes(block)) is None


@given(st.binary(max_size=100))
def test_arbitrary_octets_are_no_header(data: bytes) -> None:
    assert slot.unpack(data) is None


def test_a_slot_of_zeros_was_never_used() -> None:
    assert slot.unpack(bytes(slot.HEADER_SIZE)) is None


def test_another_version_is_refused_by_its_name() -> None:
    block = bytearray(slot.pack(HEADER))
    block[:8] = b"mqcdseg2"
    block[USED - 4 : USED] = zlib.crc32(block[: USED - 4]).to_bytes(4, "little")
    with pytest.raises(DecodeError, match="mqcdseg2"):
        slot.unpack(bytes(block))
