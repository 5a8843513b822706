"""Which segments the journal consists of: those that are reached from the newest header back.

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
from mqcd.queue.manifest.log import ManifestState
from mqcd.queue.wal.segments import Segment


class SegmentMissing(StoreDamaged):
    """A segment that must be there is not, and with it goes what nothing else tells of."""


def find_chain(disk: Disk, directory: Path, state: ManifestState) -> list[Segment]:
    """The segments of the journal, oldest first; none is opened yet.

    Raises SegmentMissing when one that the MANIFEST knows of, or that another one goes on from, is not there;
    StoreDamaged.
    """
    first_live, must_hold = state.first_live, state.last_segment
    headers: dict[int, tuple[segment_header.SlotHeader, Path]] = {}
    twins: dict[int, Path] = {}
    for path in _files(disk, directory):
        header = _read_slot_header(disk, path, state.writer)
        if header is not None and header.number >= first_live:
            if header.number in headers:
                twins[header.number] = headers[header.number][1]
            headers[header.number] = header, path
    chain: list[Segment] = []
    number = max(headers, default=0)
    while number >= first_live and number in headers:
        header, path = headers[number]
        segment = Segment(header, path)
        segment.twin = twins.get(number)
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


def _files(disk: Disk, directory: Path) -> list[Path]:
    """By number: one beyond the slots, where a file that has failed was put, comes behind its other name."""
    return [directory / name for name in sorted(filter(str.isdecimal, disk.names(directory)), key=int)]


def leftovers(disk: Disk, directory: Path, chain: Sequence[Segment], slots: int) -> list[Path]:
    """Files that are to go, because the chain does not need them and nothing may be written to them.

    They lie beyond the configured slots: spare ones, those of a larger ring, second names of files that have
    failed. And before these the slots that such a file also is. To be removed in this order: while a slot's
    file that has failed is there, so is the name that tells of it. Raises OSError, StoreDamaged.
    """
    needed = {path for segment in chain for path in (segment.path, segment.twin)}
    free = [path for path in _files(disk, directory) if path not in needed and disk.measure(path) is not None]
    beyond = [path for path in free if int(path.name) >= slots]
    if not beyond:
        return []
    # Two names of one file have one header, which no other file has.
    headers = {_read_slot_header(disk, path, "") for path in beyond} - {None}
    twins = [path for path in free[: -len(beyond)] if _read_slot_header(disk, path, "") in headers]
    return twins + beyond


def reach_back(disk: Disk, directory: Path, writer: str) -> int:
    """The oldest segment that the newest one goes back to, each by the one before; 0 = there is none.

    For one who does not know where the journal begins: old ones, which are part of it no more, are there too.
    """
    previous: dict[int, int] = {}
    for path in _files(disk, directory):
        header = _read_slot_header(disk, path, writer)
        if header is not None:
            previous[header.number] = header.previous
    number = max(previous, default=0)
    while previous.get(number, number) in previous and previous[number] < number:
        number = previous[number]
    return number


def _read_slot_header(disk: Disk, path: Path, writer: str) -> segment_header.SlotHeader | None:
    try:
        fd = disk.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in IRREGULAR:
            return None
        raise
    try:
        return segment_header.unpack(disk.pread(fd, segment_header.HEADER_SIZE, 0))
    except DecodeError as error:
        raise StoreDamaged(unknown(f"{path}: {error}", writer)) from error
    finally:
        disk.close(fd)


def irregular_slots(disk: Disk, directory: Path, slots: int) -> Iterator[Path]:
    """Whatever has the name of one of so many slots, and is no regular file. Raises OSError."""
    there = set(disk.names(directory))
    for name in map(segment_header.slot_name, range(slots)):
        if name in there and disk.measure(directory / name) is None:
            yield directory / name
