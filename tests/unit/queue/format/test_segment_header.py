"""The header of a journal slot."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.queue.format import segment_header
from tests.unit.queue.support import Rig

u64 = st.integers(0, (1 << 64) - 1)
HEADER = segment_header.SegmentHeader(3, 12, 400, 11, 9000, 1_800_000_000_000, 1 << 60)
USED = 68
SECOND = segment_header.HEADER_SIZE // 2


@given(st.builds(segment_header.SegmentHeader, u64, u64, u64, u64, u64, u64, u64))
def test_a_header_comes_back_as_it_was(header: segment_header.SegmentHeader) -> None:
    block = segment_header.pack(header)
    assert len(block) == segment_header.HEADER_SIZE
    assert segment_header.unpack(block) == header


def test_a_torn_header_is_none() -> None:
    block = segment_header.pack(HEADER)
    for length in range(USED):
        assert segment_header.unpack(block[:length]) is None
        assert segment_header.unpack(block[:length].ljust(segment_header.HEADER_SIZE, b"\0")) is None


@given(st.integers(0, USED - 1), st.integers(0, USED - 1), st.integers(1, 255))
def test_damage_to_one_copy_is_survived_to_both_not(at: int, then: int, change: int) -> None:
    for first, second in ((0, SECOND), (SECOND, 0)):
        block = bytearray(segment_header.pack(HEADER))
        block[first + at] ^= change
        assert segment_header.unpack(bytes(block)) == HEADER
        block[second + then] ^= change
        assert segment_header.unpack(bytes(block)) is None


def test_the_second_copy_counts_only_without_the_first() -> None:
    old = segment_header.pack(HEADER)
    new = segment_header.pack(segment_header.SegmentHeader(4, 20, 800, 19, 5000, 1_800_000_000_001, 1 << 60))
    assert segment_header.unpack(old[:SECOND] + new[SECOND:]) == HEADER
    assert segment_header.unpack(bytes(SECOND) + old[SECOND:]) == HEADER


@pytest.mark.parametrize("octets", [1, 512, SECOND])
async def test_damage_to_a_header_does_not_lose_its_segments_mail(rig: Rig, octets: int) -> None:
    await rig.post.send("a@example.org")
    path = rig.shard.ring.current.path if rig.shard.ring.current is not None else None
    assert path is not None
    with path.open("r+b") as file:
        file.write(bytes(octets))
    again = await rig.killed()
    assert [each.address for each in await again.post.claim_all()] == ["a@example.org"]


def test_a_slot_of_zeros_was_never_used() -> None:
    assert segment_header.unpack(bytes(segment_header.HEADER_SIZE)) is None


def test_another_version_is_refused_by_its_name() -> None:
    block = bytearray(segment_header.pack(HEADER))
    block[:8] = b"mqcdseg2"
    block[USED - 4 : USED] = zlib.crc32(block[: USED - 4]).to_bytes(4, "little")
    with pytest.raises(DecodeError, match="mqcdseg2"):
        segment_header.unpack(bytes(block))
