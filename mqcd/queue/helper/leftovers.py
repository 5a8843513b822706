"""What the last run left beside clusters and journal, removed at the start (step R4): unlisted clusters
and key files, and temporary files. The spool's silos have the mark-and-sweep (`mqcd.queue.helper.sweep`).
A cluster is listed here also if the MANIFEST does not list it, but a REPLACE frame has made it.

Promise: a file with a name that is not the queue's stays, and is reported; unlisted clusters stay while a
listed one is missing. Every step can be repeated.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.core.model import Area
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.eventlog.files import Source, parse
from mqcd.queue.format import filenames
from mqcd.queue.keys.file import DIRECTORY, KEY_FILE
from mqcd.queue.spool.silos import Silos

_CLUSTER = re.compile(r"M\d+-\d+\.(mqc|tmp)")
"""Other names are strays and left alone."""


@value
class RemoveLeftovers:
    """Remove clusters and key files that are no part of the queue, and temporary files."""

    queue_root: Path
    silos: Silos
    events: Path
    source: Source
    listed: frozenset[str]
    """Clusters of the MANIFEST, and clusters that frames of the journal have made."""
    keys: frozenset[str]
    """Its key files."""


@dataclass(slots=True)
class Leftovers:
    """What was found and stays."""

    strays: list[Path] = field(default_factory=list)
    """Files with names that are not the queue's."""
    missing: list[str] = field(default_factory=list)
    """Listed clusters that are not in their place, looked for only where there are unlisted ones."""
    kept: list[Path] = field(default_factory=list)
    """Unlisted clusters: each may be one of the missing."""


def remove_leftovers(disk: Disk, task: RemoveLeftovers) -> Leftovers:
    """Do the task. Raises OSError."""
    found = Leftovers()
    directories = [each for area in Area for each in _directories(disk, task.queue_root / area)]
    unlisted = [path for directory in directories for path in _unlisted(disk, directory, task, found)]
    _remove_clusters(disk, unlisted, task, found)
    for directory in directories:
        if directory.name.startswith("T"):
            disk.rmdir(directory)
    for name in disk.names(task.queue_root / DIRECTORY):
        path = task.queue_root / DIRECTORY / name
        if KEY_FILE.fullmatch(name) is None:
            _note_stray(disk, path, found)
        elif f"{DIRECTORY}/{name}" not in task.keys:
            _remove(disk, path)
    _remove_temps(disk, task)
    for silo in task.silos:
        for name in disk.names(silo):
            if filenames.parse(name) is None:
                _note_stray(disk, silo / name, found)
    return found


def _remove_temps(disk: Disk, task: RemoveLeftovers) -> None:
    # Not the quarantine: claims write there (`recovery.open` has removed what was left).
    inside = [task.queue_root / name for name in ("journal", "imports")]
    for directory in (task.queue_root, *inside, task.silos.root):
        for name in disk.names(directory):
            # The server itself may be writing the MANIFEST anew at this moment.
            if name.endswith(TEMP_SUFFIX) and name != f"MANIFEST{TEMP_SUFFIX}":
                _remove(disk, directory / name)
    # Other shards and the best-effort log write beside this one.
    for name in disk.names(task.events):
        file = parse(name.removesuffix(TEMP_SUFFIX)) if name.endswith(TEMP_SUFFIX) else None
        if file is not None and file.of(task.source) and not file.best_effort:
            _remove(disk, task.events / name)


def _unlisted(disk: Disk, directory: Path, task: RemoveLeftovers, found: Leftovers) -> Iterator[Path]:
    """The clusters in a directory that are not listed."""
    for name in disk.names(directory):
        path = directory / name
        if _CLUSTER.fullmatch(name) is None:
            _note_stray(disk, path, found)
        elif name.endswith(TEMP_SUFFIX):
            _remove(disk, path)
        elif str(path.relative_to(task.queue_root)) not in task.listed:
            yield path


def _remove_clusters(disk: Disk, unlisted: list[Path], task: RemoveLeftovers, found: Leftovers) -> None:
    """Remove them, unless a listed one is missing: a renamed directory moves what is in it."""
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


def _note_stray(disk: Disk, path: Path, found: Leftovers) -> None:
    if not disk.is_dir(path):
        found.strays.append(path)


def _remove(disk: Disk, path: Path) -> None:
    """Directories stay, whatever their names."""
    with contextlib.suppress(IsADirectoryError):
        disk.unlink(path)


def _directories(disk: Disk, root: Path) -> list[Path]:
    return [root, *(root / name for name in disk.names(root) if disk.is_dir(root / name))]
