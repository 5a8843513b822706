"""What lies in quarantine, as `mqcd fsck` reports it: no problem, but an operator has to look at it."""

from __future__ import annotations

from pathlib import Path

from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.admin.findings import Findings, Kind, Problem
from mqcd.queue.clusters import file as cluster
from mqcd.queue.clusters.quarantine import QUARANTINE, stands_for

_SHOWN = 120
"""Octets of a damaged line that are shown."""


def look_into_quarantine(disk: Disk, queue_root: Path, found: Findings) -> None:
    """Note each find, and count the records that it stands for. Raises OSError."""
    directory = queue_root / QUARANTINE
    for name in disk.names(directory):
        if not name.endswith(TEMP_SUFFIX):
            lines = _note_find(disk, directory / name, found)
            records = stands_for(name)
            found.quarantined += lines if records is None else records


def _note_find(disk: Disk, path: Path, found: Findings) -> int:
    """Note one find; returns how many records its octets look like."""
    try:
        data = disk.read_file(path)
    except OSError as error:
        return _note_unread(path, f"cannot be read: {error.strerror}", found)
    if path.name.startswith("segment-"):
        found.notes.append(_aside(path, None, f"a stretch of {len(data)} octets"))
        return 1
    if not data:
        return _note_unread(path, "is empty", found)
    lines = list(cluster.split_lines(data))
    for number, line in enumerate(lines, 1):
        found.notes.append(_aside(path, number, repr(line[:_SHOWN].decode("utf-8", "replace"))))
    return len(lines)


def _note_unread(path: Path, text: str, found: Findings) -> int:
    """A file with another name is no find."""
    if not path.name.endswith(".bad"):
        found.notes.append(Problem(Kind.STRAY, path, None, text))
        return 0
    found.notes.append(Problem(Kind.QUARANTINE, path, None, f"is in quarantine, and {text}"))
    return 1


def _aside(path: Path, line: int | None, text: str) -> Problem:
    return Problem(Kind.QUARANTINE, path, line, f"damaged: {text}")
