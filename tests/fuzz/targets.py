"""What is fuzzed: each decoder of the queue's files, and a session at the door, given octets.

A target returns for whatever it is given; anything but the decoder's own error is a finding. Checksums would
turn nearly every mutation away, so most targets take their input twice: as it is, and mended, with checksums
that fit what the mutation has made of it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.disk.durable import Disk
from mqcd.disk.file_window import Window
from mqcd.eventlog.files import Source
from mqcd.queue.clusters import file as cluster
from mqcd.queue.events.lines import EventText
from mqcd.queue.format import frame, record, segment_header, verdict
from mqcd.queue.format.transitions import entries, submissions
from mqcd.queue.manifest import log as manifest
from mqcd.queue.reading.live_index import LiveIndex
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.scan import Walk, read_tail
from mqcd.queue.wal.segments import Segment
from tests.fuzz import door

PATH = Path("fuzzed")
_HEAD = segment_header.SegmentHeader(1, 7, 1, 0, 0, 0, 0)
"""For a segment whose own header does not check."""

# A MANIFEST that ends in a torn line is worth a warning, but not one each time.
logging.getLogger("mqcd.queue.manifest.log").setLevel(logging.ERROR)


class OctetsDisk(Disk):
    """A disk that holds one file, read only; nothing of it is on a disk."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, path: Path, flags: int) -> int:
        return -1

    def close(self, fd: int) -> None:
        return None

    def size(self, fd: int) -> int:
        return len(self._data)

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        return self._data[offset : offset + octets]

    def read_file(self, path: Path) -> bytes:
        return self._data


def _line(data: bytes) -> None:
    with suppress(DecodeError):
        record.check(data)
    with suppress(DecodeError):
        record.Glance(data)
    try:
        recipient = record.decode(data)
    except DecodeError:
        return
    glance = record.Glance(data)
    told = recipient.spid, recipient.qid, recipient.area, recipient.linked, recipient.size, recipient.due
    assert told == (glance.spid, glance.qid, glance.area, glance.linked, glance.size, glance.due)
    record.file_of(data)
    with suppress(UnicodeEncodeError):
        assert record.decode(record.encode(recipient)) == recipient


def record_line(data: bytes) -> None:
    """A record line."""
    _line(data)
    _line(mended_line(data))


def mended_line(line: bytes) -> bytes:
    """A record line whose checksum fits."""
    body = line[: line.rfind(b"|") + 1] or b"|"
    return body + b"%08x\n" % zlib.crc32(body)


def cluster_file(data: bytes) -> None:
    """A cluster."""
    with suppress(DecodeError):
        cluster.check_first_line(data, PATH)
    lines = list(cluster.split_lines(data))
    assert b"".join(lines) == data
    window = Window.over(data)
    assert b"\n".join(b"\n".join(part) for part in window.lines(0, len(data))) == data.removesuffix(b"\n")
    for line in lines:
        record_line(line)


def frame_body(data: bytes) -> None:
    """The body of a frame; the first two octets are its kind and number of entries."""
    kind = frame.Kind(data[0] % len(frame.Kind) + 1) if data else frame.Kind.NOTE
    body, count = memoryview(data[2:]), data[1] if len(data) > 1 else 0
    with suppress(DecodeError):
        accepted, offset = submissions(kind, body)
        assert all(len(part.lines) <= len(body) for part in accepted)
        assert len(list(entries(kind, body, offset, count))) in (0, count)
    for decoder in (lambda: frame.read_begun(body, count), lambda: frame.read_take(body)):
        with suppress(DecodeError):
            decoder()
    header = frame.Header(kind, len(body), count, 0, 1, 0, 1_800_000_000_000)
    EventText(Source("node", 0)).lines(header, body)


def slot_header(data: bytes) -> None:
    """The header of a slot."""
    size = segment_header._HEADER.size - 4
    for block in (data, data[:size] + zlib.crc32(data[:size]).to_bytes(4, "little")):
        with suppress(DecodeError):
            header = segment_header.unpack(block)
            if header is not None:
                assert segment_header.unpack(segment_header.pack(header)) == header


def segment(data: bytes) -> None:
    """A journal segment, as a start, a reader and the exporter see it."""
    try:
        head = segment_header.unpack(data) or _HEAD
    except DecodeError:
        head = _HEAD
    for octets in (data, mended_segment(data, head)):
        _segment(octets, head)


def _segment(data: bytes, head: segment_header.SegmentHeader) -> None:
    disk = OctetsDisk(data)
    tail = read_tail(disk, Segment(head, PATH))
    assert tail.sequence >= head.first_sequence
    for last in (True, False):
        found = Segment(head, PATH)
        found.end = len(data)
        replay = LiveEntries()
        replay.read(disk, found, last=last)
        for entry in replay.entries({found.number: found}):
            assert entry.offset + entry.length <= len(data)
        census = LiveIndex()
        read = Segment(head, PATH)
        read.end = len(data)
        census.read(disk, read, last=last)
        assert (read.end, read.next_ordinal) == (found.end, found.next_ordinal)
    text = EventText(Source("node", 0))
    for header, body, _ in Walk(Window.over(data), Segment(head, PATH), bound=len(data)):
        assert len(text.lines(header, body)) <= header.entries + len(body)


def mended_segment(data: bytes, head: segment_header.SegmentHeader) -> bytes:
    """A segment whose frames check, as far as they follow one another."""
    made = bytearray(data)
    salted = frame.salt(head.epoch, head.number)
    at = segment_header.HEADER_SIZE
    while (length := frame.frame_length(memoryview(made), at)) is not None and at + length <= len(made):
        crc = zlib.crc32(made[at + frame._CHECKED_FROM : at + length], salted)
        made[at + 8 : at + 12] = crc.to_bytes(4, "little")
        at += length
    return bytes(made)


def manifest_file(data: bytes) -> None:
    """A MANIFEST."""
    lines = data.split(b"\n")
    mended = [b"%08x %s" % (zlib.crc32(text), text) for text in (line[9:] for line in lines[:-1])]
    for octets in (data, b"\n".join([*mended, lines[-1]])):
        with suppress(StoreDamaged):
            state = manifest.read(OctetsDisk(octets), PATH)
            assert state is not None
            whole, version = manifest.decode(manifest.encode(state.whole(), first=True).rstrip(b"\n"))
            assert version == manifest.FORMAT
            assert whole == manifest.decode(manifest.encode(whole).rstrip(b"\n"))[0]


def note(data: bytes) -> None:
    """The note of a verdict."""
    with suppress(DecodeError):
        verdict.split(data)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "record": record_line,
    "cluster": cluster_file,
    "frame": frame_body,
    "slot": slot_header,
    "segment": segment,
    "manifest": manifest_file,
    "note": note,
    "session": door.session,
}
"""By the name of the directory that holds its corpus."""
