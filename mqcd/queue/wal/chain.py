"""Which segments the journal consists of: all that are reached from the newest header back.

Raises StoreDamaged only when a segment that must exist is missing as a whole, or is of a format that this
program does not know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreDamaged
from mqcd.disk.durable import IRREGULAR, Disk
from mqcd.queue.format import segment_header
from mqcd.queue.format.versions import unknown
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.wal.segments import Segment


class SegmentMissing(StoreDamaged):
    """A segment that must be there is not, and with it goes what is recorded nowhere else."""


def find_chain(disk: Disk, directory: Path, state: ManifestState) -> list[Segment]:
    """The segments of the journal, oldest first; none is opened yet.

    Raises SegmentMissing when one that the MANIFEST knows of, or that another one goes on from, is not there;
    StoreDamaged.
    """
    first_live, must_hold = state.first_live, state.last_segment
    headers: dict[int, tuple[segment_header.SegmentHeader, Path]] = {}
    for path in _segment_files(disk, directory):
        header = _read_header(disk, path, state.writer)
        if header is not None and header.number >= first_live:
            headers[header.number] = header, path
    chain: list[Segment] = []
    number = max(headers, default=0)
    while number >= first_live and number in headers:
        header, path = headers[number]
        segment = Segment(header, path)
        if chain:
            segment.end = chain[-1].header.previous_end
            segment.must_reach = chain[-1].header.first_sequence
        chain.append(segment)
        number = header.previous
    missing = number if number >= first_live else must_hold
    if missing >= first_live and missing not in {segment.number for segment in chain}:
        raise SegmentMissing(
            f"{directory}: journal segment {missing} is missing, and with it mail that was accepted. "
            "Is the right disk mounted? Run `mqcd fsck`."
        )
    if chain:
        chain[0].must_reach = state.sequence
        chain[0].must_hold = state.last_size if chain[0].number == state.last_segment else 0
    return chain[::-1]


def _segment_files(disk: Disk, directory: Path) -> Iterator[Path]:
    """The files whose name is a segment's number. Raises StoreDamaged for a journal of an earlier format."""
    for name in disk.names(directory):
        if name.isdecimal():
            text = f"{directory / name} is a journal slot of an earlier format, which is not known here"
            raise StoreDamaged(f"{text}: start the mqcd that wrote it, or move the queue away")
        if segment_header.number_in(name) is not None:
            yield directory / name


def unused_files(disk: Disk, directory: Path, chain: Sequence[Segment]) -> list[Path]:
    """Files of the journal that hold no segment of the chain: a start removes them, and none is used again.

    They were evacuated, made ahead, or have failed. Raises OSError.
    """
    needed = {segment.path for segment in chain}
    paths = [directory / name for name in disk.names(directory) if segment_header.is_file_name(name)]
    return [path for path in paths if path not in needed and disk.measure(path) is not None]


def reach_back(disk: Disk, directory: Path, writer: str) -> int:
    """The oldest segment that the newest one goes back to, each by the one before; 0 = there is none.

    For callers that do not know where the journal begins: evacuated segments count as well.
    """
    previous: dict[int, int] = {}
    for path in _segment_files(disk, directory):
        header = _read_header(disk, path, writer)
        if header is not None:
            previous[header.number] = header.previous
    number = max(previous, default=0)
    while previous.get(number, number) in previous and previous[number] < number:
        number = previous[number]
    return number


def _read_header(disk: Disk, path: Path, writer: str) -> segment_header.SegmentHeader | None:
    """The header of the segment that the file's name says; None when the file is none of it."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        # Where a server writes, the file may have been renamed meanwhile.
        return None
    except OSError as error:
        if error.errno in IRREGULAR:
            return None
        raise
    try:
        header = segment_header.unpack(disk.pread(fd, segment_header.HEADER_SIZE, 0))
    except DecodeError as error:
        raise StoreDamaged(unknown(f"{path}: {error}", writer)) from error
    finally:
        disk.close(fd)
    return header if header is not None and header.number == segment_header.number_in(path.name) else None


def irregular_files(disk: Disk, directory: Path) -> Iterator[Path]:
    """What has the name of a journal file and is no regular file. Raises OSError."""
    for name in filter(segment_header.is_file_name, disk.names(directory)):
        if disk.measure(directory / name) is None:
            yield directory / name
