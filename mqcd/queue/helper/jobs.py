"""What the helper process does: values that say what, and functions that do it.

Every task can be repeated: what exists already is done, and what was left half-way has a temporary name.
None of them commits anything; the shard's own process does, by one MANIFEST edit.
"""

from __future__ import annotations

import contextlib
import errno
import os
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.core.model import Area
from mqcd.core.queueing.holding import Holding
from mqcd.core.queueing.transition import parked
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retain, Retained, retain
from mqcd.queue.clusters import file as cluster
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.events.export import Exported, export
from mqcd.queue.format import record, segment_header
from mqcd.queue.helper.divide import Divide, Divisions, File, divide
from mqcd.queue.helper.leftovers import Leftovers, RemoveLeftovers, remove_leftovers
from mqcd.queue.helper.sweep import FindOrphans, Orphan, find_orphans
from mqcd.queue.keys.file import WriteKeys, Written, write_keys
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.spool.files import place
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.segments import Segment

_FEW = 8
"""Up to so many files are synced one by one; more of them by one sync of the filesystem."""


@value(kw_only=False)
class Export:
    """Write a sealed segment's event file."""

    header: segment_header.SegmentHeader
    path: Path
    end: int
    events: Path
    source: Source


@value(kw_only=False)
class Evacuate:
    """Copy what still lives in a segment to the spool and to clusters (steps C2 and C3)."""

    path: Path
    number: int
    queue_root: Path
    silos: Silos
    contents: array[int]
    """SPID, offset and length of each content that must outlive its segment."""
    links: Mapping[int, Sequence[int]]
    """By SPID: QIDs of the recipients that have names of their own; none = one name for all."""
    lines: array[int]
    """Offset and length of each record line, and when it is due: its own time may be another."""
    max_cluster: int
    granularity: int
    """ms."""
    holding: Holding = field(default_factory=Holding)
    """Domains whose held mail has clusters of its own."""


@value(kw_only=False)
class Evacuated:
    """What has become of a segment's record lines."""

    clusters: Sequence[ClusterState] = ()
    bad: int = 0
    """Lines that did not check, and were quarantined."""


@value(kw_only=False)
class Prepare:
    """Make a journal file and fill it, so that the committer need not."""

    path: Path
    size: int


@value(kw_only=False)
class MakeReserve:
    """Give a reserve file its space, see `mqcd.queue.disk.reserve`."""

    path: Path
    size: int


class Sign(Enum):
    """What comes while a task is under way."""

    BUSY = "busy"
    """It has gone on since the last sign."""


Task = Export | Evacuate | WriteKeys | Prepare | MakeReserve | RemoveLeftovers | FindOrphans | Retain | Divide
Result = Exported | Evacuated | Written | list[Orphan] | Leftovers | Retained | Divisions | None


def run(disk: Disk, task: Task) -> Result:
    """Do a task. Raises OSError and MqcdError, which the shard's process gets as they are."""
    match task:
        case Export():
            segment = Segment(task.header, task.path)
            segment.end = task.end
            return export(disk, segment, task.events, task.source)
        case Evacuate():
            return evacuate(disk, task)
        case WriteKeys():
            return write_keys(disk, task)
        case Prepare():
            prepare(disk, task)
            return None
        case MakeReserve():
            make_reserve(disk, task)
            return None
        case RemoveLeftovers():
            return remove_leftovers(disk, task)
        case FindOrphans():
            return find_orphans(disk, task)
        case Retain():
            return retain(disk, task)
        case Divide():
            return replacements(disk, task)


def evacuate(disk: Disk, task: Evacuate) -> Evacuated:
    """Steps C2 and C3; returns the clusters for the MANIFEST."""
    fd = disk.open(task.path, os.O_RDONLY)
    temps: list[Path] = []
    try:
        with disk.watching(task.silos.root) as watch:
            _spool_contents(disk, fd, task, temps, watch)
        with disk.watching(task.queue_root) as watch:
            plans, bad = _plans(disk, fd, task)
            files = [(plan.state, [line.raw for line in plan.lines]) for plan in plans]
            _write_clusters(disk, task.queue_root, files, temps, watch)
            return Evacuated([plan.state for plan in plans], bad)
    except (OSError, MqcdError):
        # On a full disk others need the room.
        _drop(disk, temps)
        raise
    finally:
        disk.close(fd)


def _drop(disk: Disk, temps: Sequence[Path]) -> None:
    """Remove temporary files as far as the disk lets us; the next start removes the others."""
    for temp in temps:
        with contextlib.suppress(OSError):
            disk.unlink(temp)


def _spool_contents(disk: Disk, fd: int, task: Evacuate, temps: list[Path], watch: int) -> None:
    placements = []
    silos = set()
    # Three numbers for each content.
    few = len(task.contents) <= 3 * _FEW
    for spid, offset, length in _triples(task.contents):
        temp = task.silos.path(spid).with_suffix(TEMP_SUFFIX)
        silos.add(temp.parent)
        paths = [task.silos.path(spid, qid) for qid in task.links.get(spid, (0,))]
        data = disk.pread(fd, length, offset)
        # What exists is whole and synced, but its writer may have been killed before the directory was.
        missing = [path for path in paths if not _is_done(disk, path, data)]
        if not missing:
            continue
        temps.append(temp)
        disk.write_temp(temp, [data], sync=few)
        placements.append((temp, missing))
    if not few:
        disk.sync_filesystem(task.silos.root, watch)
    for temp, paths in placements:
        place(disk, temp, paths)
    for silo in silos:
        disk.sync_dir(silo)


def _is_done(disk: Disk, path: Path, data: bytes) -> bool:
    """Whether a content has its name already. A file of other octets that has it is nobody's, and goes.

    Raises OSError, also for a directory or another thing that has it.
    """
    if not disk.exists(path):
        return False
    there = disk.measure(path)
    if there is None:
        raise OSError(errno.EEXIST, "is no regular file, and stands where a content belongs", str(path))
    with contextlib.suppress(OSError):
        if there.octets == len(data) and disk.read_file(path) == data:
            return True
    disk.unlink(path)
    return False


def _triples(numbers: array[int]) -> Iterator[tuple[int, int, int]]:
    each = iter(numbers)
    return zip(each, each, each, strict=True)


def replacements(disk: Disk, task: Divide) -> Divisions:
    """Write the clusters of a division. Raises OSError."""
    temps: list[Path] = []
    try:
        files, done = divide(disk, task)
        with disk.watching(task.queue_root) as watch:
            _write_clusters(disk, task.queue_root, files, temps, watch)
        return done
    except (OSError, MqcdError):
        _drop(disk, temps)
        raise


def _plans(disk: Disk, fd: int, task: Evacuate) -> tuple[list[cluster.Plan], int]:
    """The clusters of a segment's lines, and how many lines did not check."""
    bad = 0
    areas: dict[Area, list[cluster.Line]] = defaultdict(list)
    for offset, length, due in _triples(task.lines):
        raw = disk.pread(fd, length, offset)
        try:
            area, line = _line(raw, due)
        except DecodeError:
            # Its record location ends with the segment.
            to_quarantine(disk, task.queue_root, f"segment-{task.number}", offset, raw, records=1)
            bad += 1
        else:
            areas[area].append(line)
    plans = [
        plan
        for area, found in areas.items()
        for place, lines in cluster.by_place(area, found, task.holding).items()
        for plan in cluster.plan(place, lines, task.number, task.max_cluster, task.granularity)
    ]
    return plans, bad


def _write_clusters(
    disk: Disk, queue_root: Path, files: Sequence[File], temps: list[Path], watch: int
) -> None:
    directories = set()
    renames = []
    for state, lines in files:
        path = queue_root / state.name
        disk.mkdir(path.parent, sync=False)
        temp = path.with_suffix(TEMP_SUFFIX)
        temps.append(temp)
        disk.write_temp(temp, [cluster.FIRST_LINE, *lines], sync=len(files) <= _FEW)
        renames.append((temp, path))
        # Parents too, also existing ones: an earlier try may have been killed before this.
        directories |= {path.parent, path.parent.parent, queue_root}
    if len(files) > _FEW:
        disk.sync_filesystem(queue_root, watch)
    for temp, path in renames:
        disk.rename(temp, path)
    for directory in directories:
        disk.sync_dir(directory)


def _line(raw: bytes, due: int) -> tuple[Area, cluster.Line]:
    """A line as its cluster takes it, and which area that is in. Raises DecodeError."""
    glance = record.sound(raw)
    if glance.due != due:
        # It was passed over, brought forward, or put off: perhaps because it cannot be decoded.
        recipient = record.decode(raw)
        # `parked` leaves a bounce as it is, and would take held mail out of its area.
        if glance.area not in (Area.BOUNCES, Area.HELD):
            raw = record.encode(parked(recipient, due))
            glance = record.Glance(raw)
    return glance.area, cluster.Line.of(glance, raw)


def prepare(disk: Disk, task: Prepare) -> None:
    """What is there under that name goes. The name is made durable when a segment uses the file."""
    fd = disk.create(task.path)
    try:
        disk.zero_fill(fd, 0, task.size)
    except OSError:
        _drop(disk, [task.path])
        raise
    finally:
        disk.close(fd)


def make_reserve(disk: Disk, task: MakeReserve) -> None:
    """One that is there is left alone."""
    if disk.exists(task.path):
        return
    temp = task.path.with_suffix(TEMP_SUFFIX)
    fd = disk.create(temp)
    try:
        disk.reserve(fd, task.size)
    except OSError:
        _drop(disk, [temp])
        raise
    finally:
        disk.close(fd)
    disk.rename(temp, task.path)
