"""What the helper looks for and removes: what the last run left (step R4), and old files that nobody owns.

Promise: whatever has a name that is none of ours is left alone, and told of; whatever may be needed stays.
So do unlisted clusters while a listed one is missing.
Every step can be repeated.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.core.model import Area
from mqcd.core.spid import is_several, time_of
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.eventlog.files import Source, parse
from mqcd.queue.clusters.quarantine import QUARANTINE
from mqcd.queue.format import filenames
from mqcd.queue.spool.silos import Silos

_CLUSTER = re.compile(r"M\d+-\d+\.(mqc|tmp)")
"""Other names are strays and left alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """Remove what nobody lists and what was left half-written (step R4)."""

    queue_root: Path
    silos: Silos
    events: Path
    source: Source
    listed: frozenset[str]
    """Clusters of the MANIFEST."""
    above: int
    below: int
    """SPIDs between the two were accepted after the last edit, or never: they need an owner."""
    drafts: frozenset[int] = frozenset()
    """So do these."""
    owned: frozenset[int]
    """File numbers of unfinished recipients in the journal whose content is in the spool."""
    inside: frozenset[int]
    """The same whose content is in the journal: a spool file is left of an evacuation that failed."""
    ended: frozenset[int]
    """File numbers of recipients that ended in the journal's time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FindStrays:
    """Which old files in the silos may belong to nobody?"""

    queue_root: Path
    silos: Silos
    before: int
    """Files that were written at this time (ms) or later are young."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An old file in a silo."""

    path: Path
    spid: int | None
    """Its message's, when it has the name of one: it may have an owner. Others have none."""


@dataclass(slots=True)
class Swept:
    """What a sweep found besides waste."""

    doubtful: set[int] = field(default_factory=set)
    """Messages with several recipients whose file may be unneeded: their count must be taken."""
    strays: list[Path] = field(default_factory=list)
    """Files with names that are none of ours."""
    missing: list[str] = field(default_factory=list)
    """Listed clusters that are not in their place, looked for only where there are unlisted ones."""
    kept: list[Path] = field(default_factory=list)
    """Unlisted clusters: each may be one of the missing."""


def sweep(disk: Disk, task: Sweep) -> Swept:
    """Remove what is waste. Raises OSError."""
    found = Swept()
    directories = [each for area in Area for each in _directories(disk, task.queue_root / area)]
    unlisted = [path for directory in directories for path in _look_at(disk, directory, task, found)]
    _sweep_clusters(disk, unlisted, task, found)
    for directory in directories:
        if directory.name.startswith("T"):
            disk.rmdir(directory)
    _sweep_temps(disk, task)
    for silo in task.silos:
        _sweep_silo(disk, silo, task, found)
    return found


def _sweep_temps(disk: Disk, task: Sweep) -> None:
    inside = [task.queue_root / name for name in ("journal", "imports", QUARANTINE)]
    for directory in (task.queue_root, *inside, task.silos.root):
        for name in disk.names(directory):
            # The MANIFEST is our owner's, who may be writing it anew at this moment.
            if name.endswith(TEMP_SUFFIX) and name != f"MANIFEST{TEMP_SUFFIX}":
                _remove(disk, directory / name)
    # Other shards and the best-effort log write beside ours.
    for name in disk.names(task.events):
        file = parse(name.removesuffix(TEMP_SUFFIX)) if name.endswith(TEMP_SUFFIX) else None
        if file is not None and file.of(task.source) and not file.best_effort:
            _remove(disk, task.events / name)


def _look_at(disk: Disk, directory: Path, task: Sweep, found: Swept) -> Iterator[Path]:
    """The clusters in a directory that nobody lists."""
    for name in disk.names(directory):
        path = directory / name
        if _CLUSTER.fullmatch(name) is None:
            _note_stray(disk, path, found)
        elif name.endswith(TEMP_SUFFIX):
            _remove(disk, path)
        elif str(path.relative_to(task.queue_root)) not in task.listed:
            yield path


def _sweep_clusters(disk: Disk, unlisted: list[Path], task: Sweep, found: Swept) -> None:
    """They go, unless one that is listed is missing: who renames a directory moves what is in it."""
    if unlisted:
        found.missing = sorted(name for name in task.listed if not _is_there(disk, task.queue_root / name))
    if found.missing:
        found.kept = unlisted
        return
    for path in unlisted:
        _remove(disk, path)


def _is_there(disk: Disk, path: Path) -> bool:
    try:
        return disk.measure(path) is not None
    except OSError:
        return False


def _sweep_silo(disk: Disk, silo: Path, task: Sweep, found: Swept) -> None:
    for name in disk.names(silo):
        file = filenames.parse(name)
        if name.endswith(TEMP_SUFFIX):
            # One of a message that is being accepted at this moment is left to it.
            if file is None or filenames.spid_of(file) < task.below:
                _remove(disk, silo / name)
        elif file is not None:
            if _is_waste(file, task):
                _remove(disk, silo / name)
            elif file in task.ended and file not in task.owned:
                found.doubtful.add(filenames.spid_of(file))
        else:
            _note_stray(disk, silo / name, found)


def _note_stray(disk: Disk, path: Path, found: Swept) -> None:
    if not disk.is_dir(path):
        found.strays.append(path)


def _remove(disk: Disk, path: Path) -> None:
    """Directories are none of ours, whatever their names."""
    with contextlib.suppress(IsADirectoryError):
        disk.unlink(path)


def _is_waste(file: int, task: Sweep) -> bool:
    if file in task.inside:
        return True
    if file in task.owned:
        return False
    spid = filenames.spid_of(file)
    if task.above < spid < task.below or spid in task.drafts:
        return True
    return file in task.ended and (filenames.is_link(file) or not is_several(spid))


def _directories(disk: Disk, root: Path) -> list[Path]:
    return [root, *(root / name for name in disk.names(root) if disk.is_dir(root / name))]


def find_strays(disk: Disk, task: FindStrays) -> list[Stray]:
    """Old files in the silos; none while the quarantine holds anything, for it may hold their owners."""
    if disk.names(task.queue_root / QUARANTINE):
        return []
    strays = []
    for silo in task.silos:
        for name in disk.names(silo):
            file = filenames.parse(name)
            spid = filenames.spid_of(file) if file is not None else None
            # A young message has a young file; to ask for the times of a million would take long.
            if spid is not None and time_of(spid) >= task.before:
                continue
            file_there = disk.measure(silo / name)
            if file_there is not None and file_there.modified < task.before:
                strays.append(Stray(silo / name, spid))
    return strays
