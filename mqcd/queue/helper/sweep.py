"""The spool's mark-and-sweep, as the helper does it: which files in the silos does no record need?

Mark: one pass over the clusters notes the file of each record. Sweep: one pass over the silos lists the files
without a mark. The journal is not read here: the caller compares the list with what is in memory, after the
pass (see `mqcd.queue.checkpoint.spool_gc`). Nothing is removed here.

Promise: nothing is listed while a record may exist that cannot be read: while the quarantine holds anything,
no file is; while a cluster or a line of one cannot be read, no file named after a message is. Directories and
symbolic links are never listed.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.spid import silo_of, time_of
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.clusters import file as cluster
from mqcd.queue.clusters.quarantine import QUARANTINE
from mqcd.queue.format import filenames, record
from mqcd.queue.spool.silos import Silos


@value
class FindOrphans:
    """List the files in the silos that no cluster needs."""

    queue_root: Path
    silos: Silos
    clusters: Sequence[tuple[str, int, int]]
    """Name, cursor and size of each cluster with records."""
    newest: int
    """The newest SPID that the queue has handed out. Files of later ones are not its own."""
    before: int | None
    """Files that are not the queue's own are listed when they are older than this time, ms; None = never."""


@value(kw_only=False)
class Orphan:
    """A file that no cluster needs."""

    path: Path
    file: int | None
    """File number, if it is the queue's own: the journal may need it. None = not the queue's own."""


Marks = dict[int, tuple["array[int]", "array[int]"]]
"""SPIDs and QIDs of the file numbers of all records, by silo: plain numbers, for there may be millions."""


def find_orphans(disk: Disk, task: FindOrphans) -> list[Orphan]:
    """Do the task. Raises OSError."""
    if disk.names(task.queue_root / QUARANTINE):
        return []
    marks = _mark(disk, task)
    orphans: list[Orphan] = []
    for number, silo in enumerate(task.silos, 1):
        spids, qids = marks.get(number, ((), ())) if marks is not None else ((), ())
        needed = set(map(filenames.number, spids, qids))
        unmarked = _unmarked(disk, silo, needed, task)
        orphans += [each for each in unmarked if each.file is None or marks is not None]
    return orphans


def _mark(disk: Disk, task: FindOrphans) -> Marks | None:
    """The records of all clusters; None when one of them cannot be read."""
    marks: Marks = defaultdict(lambda: (array("Q"), array("Q")))
    for name, cursor, size in task.clusters:
        try:
            data = cluster.read_from(disk, task.queue_root / name, cursor, size)
            if len(data) < size - cursor:
                return None
            for line in cluster.split_lines(data):
                record.verify(line)
                file = record.file_of(line)
                spid = filenames.spid_of(file)
                spids, qids = marks[silo_of(spid, task.silos.count)]
                spids.append(spid)
                qids.append(filenames.qid_of(file))
        except (OSError, DecodeError):
            return None
    return marks


def _unmarked(disk: Disk, silo: Path, needed: set[int], task: FindOrphans) -> Iterator[Orphan]:
    for name in disk.names(silo):
        file = filenames.parse(name)
        path = silo / name
        if file is None or filenames.spid_of(file) > task.newest:
            if _is_old(disk, path, file, task.before):
                yield Orphan(path, None)
        elif (file not in needed or name.endswith(TEMP_SUFFIX)) and disk.measure(path) is not None:
            yield Orphan(path, file)


def _is_old(disk: Disk, path: Path, file: int | None, before: int | None) -> bool:
    """Whether a file was written before that time and, if it is named after a message, so was the message."""
    if before is None or (file is not None and time_of(filenames.spid_of(file)) >= before):
        return False
    found = disk.measure(path)
    return found is not None and found.modified < before
