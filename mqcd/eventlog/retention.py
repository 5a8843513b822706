"""Removes old event files, by age and by size.

Settings read: `events/maxage`, `events/maxsize`. Promise: the oldest go first, by the time that they were
written. A file of a segment that is still part of the journal stays: the next start would write it again.
Files with other names, unfinished ones among them, are left alone and do not count. Best-effort files may
hold a tenth of `maxsize`, so that strangers who are refused cannot push the mail's own history out.

Removals are not synced: a file that comes back after a power cut goes once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe
from mqcd.eventlog.files import Source, parse

_SHARE = 10
"""Best-effort files may hold one part in so many."""


@value
class Retention:
    """How long event files are kept; 0 = no limit."""

    maxage: int = 0
    """ms."""
    maxsize: int = 0
    """Octets of all of them together."""


@value
class Retain:
    """Remove event files that are too old or too many."""

    directory: Path
    source: Source
    first_live: int
    """Segments of the source from this one on are part of the journal."""
    before: int
    """Files that were written before this time go, ms."""
    maxsize: int
    """Octets; 0 = no limit."""


@value
class Retained:
    """What was removed."""

    removed: int = 0
    octets: int = 0
    failures: tuple[str, ...] = ()
    """Files that could not be removed, and why."""


class _File(NamedTuple):
    modified: int
    name: str
    octets: int
    best_effort: bool
    live: bool


def retain(disk: Disk, task: Retain) -> Retained:
    """Remove files above the limits on age and size; a file that cannot be removed does not stop the others.
    Raises OSError."""
    files = sorted(_files(disk, task))
    doomed = dict.fromkeys(each for each in files if each.modified < task.before)
    if task.maxsize:
        kept = [each for each in files if each not in doomed]
        doomed |= dict.fromkeys(_surplus([each for each in kept if each.best_effort], task.maxsize // _SHARE))
        kept = [each for each in kept if each not in doomed]
        doomed |= dict.fromkeys(_surplus(kept, task.maxsize))
    failures = []
    gone = []
    for each in (each for each in doomed if not each.live):
        try:
            disk.unlink(task.directory / each.name)
            gone.append(each)
        except OSError as error:
            failures.append(describe(error))
    return Retained(removed=len(gone), octets=sum(each.octets for each in gone), failures=tuple(failures))


def _files(disk: Disk, task: Retain) -> Iterable[_File]:
    for name in disk.names(task.directory):
        file = parse(name)
        found = disk.measure(task.directory / name) if file is not None else None
        if file is not None and found is not None:
            live = file.of(task.source) and not file.best_effort and file.number >= task.first_live
            yield _File(found.modified, name, found.octets, file.best_effort, live)


def _surplus(files: list[_File], octets: int) -> list[_File]:
    """The oldest of some files, as many as make the others fit."""
    total = sum(each.octets for each in files)
    surplus = []
    for each in files:
        if total <= octets:
            break
        if not each.live:
            surplus.append(each)
            total -= each.octets
    return surplus
