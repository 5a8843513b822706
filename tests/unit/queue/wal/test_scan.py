"""Reading segments back: torn tail or damage, which segments belong, which frames are of another time."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.queue.format import frame, segment_header
from mqcd.queue.format.frame import Kind
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.wal.chain import find_chain
from mqcd.queue.wal.scan import Frame, Walk, scan
from mqcd.queue.wal.segments import Segment
from tests.unit.queue.support import OneFile

EPOCH, NUMBER, FIRST = 3, 12, 100


def segment(number: int = NUMBER, epoch: int = EPOCH) -> Segment:
    return Segment(
        segment_header.SegmentHeader(epoch, number, FIRST, 0, 0, 0, 0), Path(f"journal/{number}.wal")
    )


def frames(bodies: list[bytes], *, groups: int = 1, epoch: int = EPOCH, number: int = NUMBER) -> list[bytes]:
    """A segment's frames, one entry each, synced in groups of `groups`."""
    made = []
    salted = frame.salt(epoch, number)
    for index, body in enumerate(bodies):
        sequence = FIRST + index
        synced = FIRST + index // groups * groups - 1
        made.append(frame.pack_header(salted, Kind.NOTE, [body], 1, index, sequence, synced, 5) + body)
    return made


def walked(data: bytes, *, bound: int | None = None) -> tuple[list[bytes], Walk]:
    """The bodies that are found, also when no more than the frame that is looked at is in memory."""
    walk = Walk(Window.over(data), segment(), bound=bound)
    bodies = [bytes(each.body) for each in walk]
    narrow = Walk(Window(OneFile(data), 0, len(data), 16), segment(), bound=bound)
    assert [bytes(each.body) for each in narrow] == bodies
    assert (narrow.end, narrow.sequence, narrow.ordinal) == (walk.end, walk.sequence, walk.ordinal)
    assert narrow.damage == walk.damage
    return bodies, walk


def laid(parts: list[bytes], tail: int = 0) -> bytes:
    return bytes(segment_header.HEADER_SIZE) + b"".join(parts) + bytes(tail)


BODIES = [b"one", b"two" * 20, b"", b"four" * 9]


def test_all_frames_are_seen_in_order() -> None:
    data = laid(frames(BODIES), tail=5000)
    bodies, walk = walked(data)
    assert bodies == BODIES
    assert (walk.end, walk.sequence, walk.ordinal) == (len(data) - 5000, FIRST + 4, 4)
    assert not walk.damage


def test_bodies_are_where_they_are_said_to_be() -> None:
    data = laid(frames(BODIES))
    walk = Walk(Window.over(data), segment(), bound=None)
    assert [data[each.body_at :][: each.header.length] for each in walk] == BODIES


def test_a_tail_torn_anywhere_ends_the_journal() -> None:
    *before, last = frames(BODIES)
    for length in range(len(last)):
        bodies, walk = walked(laid([*before, last[:length]], tail=300))
        assert bodies == BODIES[:-1]
        assert walk.end == len(laid(before))
        assert not walk.damage


def test_a_torn_group_ends_the_journal_despite_later_frames() -> None:
    first, torn, *later = frames(BODIES, groups=4)
    bodies, walk = walked(laid([first, bytes(len(torn)), *later]))
    assert bodies == BODIES[:1]
    assert not walk.damage


def test_a_bad_frame_below_a_later_synced_sequence_is_damage() -> None:
    parts = frames(BODIES)
    at = len(laid(parts[:1]))
    bad = bytearray(parts[1])
    bad[-1] ^= 1
    bodies, walk = walked(laid([parts[0], bytes(bad), *parts[2:]], tail=100))
    assert bodies == [BODIES[0], *BODIES[2:]]
    [damage] = walk.damage
    assert (damage.segment, damage.start, damage.end) == (NUMBER, at, at + len(bad))
    assert walk.sequence == FIRST + 4


def test_frames_without_entries_that_had_no_sequence_are_read() -> None:
    """As older versions wrote them."""
    salted = frame.salt(EPOCH, NUMBER)
    parts = []
    for index, (body, count) in enumerate([(b"", 0), (b"one", 1), (b"", 0), (b"", 0), (b"two", 1)]):
        sequence = FIRST + (index > 1)
        header = frame.pack_header(salted, Kind.CARRY, [body], count, index > 1, sequence, sequence - 1, 5)
        parts.append(header + body)
    bodies, walk = walked(laid(parts, tail=100))
    assert bodies == [b"", b"one", b"", b"", b"two"]
    assert walk.sequence == FIRST + 2
    parts[1] = parts[1][:-1] + b"X"
    bodies, walk = walked(laid(parts, tail=100))
    assert bodies == [b"", b"", b"", b"two"]
    assert len(walk.damage) == 1


def test_a_bad_frame_before_a_known_end_is_damage() -> None:
    *before, last = frames(BODIES, groups=4)
    data = laid([*before, bytes(len(last))])
    bodies, walk = walked(data, bound=len(data))
    assert bodies == BODIES[:-1]
    [damage] = walk.damage
    assert (damage.start, damage.end) == (len(laid(before)), len(data))


def test_a_frame_that_cannot_be_decoded_is_damage_with_its_body(tmp_path: Path) -> None:
    parts = frames(BODIES)
    path = tmp_path / "12.wal"
    path.write_bytes(laid(parts))
    read: list[bytes] = []

    def apply(_segment: Segment, found: Frame) -> None:
        if found.body == BODIES[1]:
            raise DecodeError("no entry")
        read.append(bytes(found.body))

    [damage] = scan(Disk(), Segment(segment().header, path), apply, last=True)
    assert read == [BODIES[0], *BODIES[2:]]
    assert (damage.start, damage.end) == (len(laid(parts[:1])), len(laid(parts[:2])))


def test_octets_behind_the_known_end_are_ignored() -> None:
    parts = frames(BODIES)
    bodies, walk = walked(laid(parts), bound=len(laid(parts[:2])))
    assert bodies == BODIES[:2]
    assert not walk.damage


@pytest.mark.parametrize(("epoch", "number"), [(EPOCH - 1, NUMBER), (EPOCH, NUMBER - 8)])
def test_frames_of_an_earlier_use_of_the_slot_are_ignored(epoch: int, number: int) -> None:
    old = frames(BODIES * 3, epoch=epoch, number=number)
    new = frames(BODIES[:2])
    data = bytearray(laid(old))
    data[segment_header.HEADER_SIZE : segment_header.HEADER_SIZE + len(b"".join(new))] = b"".join(new)
    bodies, walk = walked(bytes(data))
    assert bodies == BODIES[:2]
    assert not walk.damage


def test_an_empty_segment_has_no_frames() -> None:
    assert walked(laid([], tail=9000))[0] == []


# ---------------------------------------------------------------- chains


def put(directory: Path, number: int, previous: int, end: int = 5000) -> None:
    block = segment_header.pack(
        segment_header.SegmentHeader(EPOCH, number, number * 10, previous, end if previous else 0, 0, 0)
    )
    (directory / segment_header.file_name(number)).write_bytes(block + bytes(1000))


def chain(directory: Path, first_live: int = 1, must_hold: int = 0) -> list[tuple[int, int]]:
    found = find_chain(Disk(), directory, ManifestState(first_live=first_live, last_segment=must_hold))
    return [(each.number, each.end) for each in found]


def test_a_chain_is_followed_back_by_its_headers(tmp_path: Path) -> None:
    put(tmp_path, 5, 0)
    put(tmp_path, 6, 5, 5100)
    put(tmp_path, 7, 6, 5200)
    assert chain(tmp_path) == [(5, 5100), (6, 5200), (7, segment_header.HEADER_SIZE)]


def test_a_failed_file_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, 5, 0)
    put(tmp_path, 6, 5, 5100)
    put(tmp_path, 7, 5, 5300)
    assert chain(tmp_path) == [(5, 5300), (7, segment_header.HEADER_SIZE)]


def test_segments_that_were_evacuated_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, 5, 4)
    put(tmp_path, 6, 5)
    assert chain(tmp_path, first_live=6) == [(6, segment_header.HEADER_SIZE)]
    assert chain(tmp_path, first_live=7, must_hold=6) == []


def test_files_without_their_own_header_are_ignored(tmp_path: Path) -> None:
    put(tmp_path, 5, 0)
    (tmp_path / "6.wal").write_bytes(bytes(9000))
    (tmp_path / "9.wal").write_bytes(
        segment_header.pack(segment_header.SegmentHeader(9, 9, 9, 5, 9, 9, 9))[:30]
    )
    (tmp_path / "7.wal").write_bytes(b"")
    (tmp_path / "8.wal").write_bytes((tmp_path / "5.wal").read_bytes())
    (tmp_path / "ready-1.wal").write_bytes((tmp_path / "5.wal").read_bytes())
    (tmp_path / "6.tmp").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    assert chain(tmp_path, must_hold=5) == [(5, segment_header.HEADER_SIZE)]


@pytest.mark.parametrize(
    ("first_live", "must_hold", "missing"), [(5, 5, 5), (3, 0, 4), (5, 9, 9)], ids=["all", "middle", "newest"]
)
def test_a_segment_that_must_exist_and_does_not_is_refused(
    tmp_path: Path, first_live: int, must_hold: int, missing: int
) -> None:
    if missing != 5:
        put(tmp_path, 5, 4)
    with pytest.raises(StoreDamaged, match=f"journal segment {missing} is missing"):
        chain(tmp_path, first_live, must_hold)


def test_a_journal_of_numbered_slots_is_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path, 5, 0)
    (tmp_path / "00").write_bytes(b"")
    with pytest.raises(StoreDamaged, match=f"{tmp_path}/00 is a journal slot of an earlier format"):
        chain(tmp_path)


def test_a_file_of_another_version_is_refused_by_file_and_name(tmp_path: Path) -> None:
    block = bytearray(segment_header.pack(segment_header.SegmentHeader(1, 5, 1, 0, 0, 0, 0)))
    block[:8] = b"mqcdseg9"
    block[64:68] = zlib.crc32(block[:64]).to_bytes(4, "little")
    (tmp_path / "5.wal").write_bytes(block)
    with pytest.raises(StoreDamaged, match=r"5\.wal: journal format 'mqcdseg9'"):
        chain(tmp_path)


class Beside(OneFile):
    """A file to which a server writes while it is read: what stands behind `when` is read after that."""

    def __init__(self, before: bytes, after: bytes, when: int) -> None:
        super().__init__(before)
        self._after = after
        self._when = when

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        if offset >= self._when:
            self._data = self._after
        return super().pread(fd, octets, offset)


@pytest.mark.parametrize("whole", [1, 2, 3])
@pytest.mark.parametrize("torn", [0, 20])
def test_a_write_during_a_read_is_no_damage(whole: int, torn: int) -> None:
    made = frames([b"%04d" % number * 10 for number in range(20)])
    after = laid(made)
    seen = laid(made[:whole])
    before = (seen + after[len(seen) : len(seen) + torn]).ljust(len(after), b"\0")
    walk = Walk(Window(Beside(before, after, len(seen) + 300), 0, len(after), 512), segment(), bound=None)
    assert len(list(walk)) == 20
    assert walk.damage == []


class Torn(OneFile):
    """A file of which the first read meets a write half done, behind which another one is done already."""

    def __init__(self, before: bytes, after: bytes) -> None:
        super().__init__(before)
        self._after = after

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        data = super().pread(fd, octets, offset)
        self._data = self._after
        return data


def test_a_half_written_group_is_no_damage() -> None:
    made = frames([b"%04d" % number * 10 for number in range(5)])
    after = laid(made)
    at = len(laid(made[:2]))
    before = after[: at + 50] + bytes(30) + after[at + 80 :]
    walk = Walk(Window(Torn(before, after), 0, len(after)), segment(), bound=None)
    assert len(list(walk)) == 5
    assert walk.damage == []
