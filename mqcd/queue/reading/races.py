"""What a server may do to the files that a reader reads, and how the reader finds out.

| the server | found by | then |
|---|---|---|
| is removing files, or would remove or reuse some | `take_pin` | StoreBusy, or it waits for the pin |
| commits an evacuation between MANIFEST and journal | `evacuated_between` | both are read again |
| frees segments of the MANIFEST before they are read | `check_not_freed` | StoreBusy |
| frees a segment that was read, before its file is opened again | `open_segment` | StoreBusy |
| reuses the file of a segment for another one while it is read | `check_same` | StoreBusy |
| removes a cluster that an edit has ended, before it is read | `check_not_ended` | StoreBusy |

It waits for a minute at most, and not at all when the journal needs room: only then the last four happen. A
spool file that is gone is a content that cannot be read, whatever removed it. Any other change
leaves true what was read: frames and edits are appended, and lines in a cluster do not move.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from mqcd.core.errors import StoreBusy
from mqcd.disk.durable import Disk
from mqcd.queue.format import segment_header
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.wal.fold import Fold
from mqcd.queue.wal.segments import Segment

ReadManifest = Callable[[], ManifestState]
"""Reads what the MANIFEST says now."""
MOVED_ON = "the queue has moved on while it was read; try again"


def take_pin(disk: Disk, queue_root: Path) -> int | None:
    """A descriptor that holds the pin until it is closed; None where there is no such file.

    Raises StoreBusy, OSError.
    """
    try:
        fd = disk.open(queue_root / "pin", os.O_RDONLY)
    except FileNotFoundError:
        return None
    if not disk.lock(fd, exclusive=False):
        disk.close(fd)
        raise StoreBusy("the server is tidying the queue at this moment; try again")
    return fd


def evacuated_between(
    state: ManifestState, journal: Fold[Any], read_manifest: ReadManifest
) -> ManifestState | None:
    """The MANIFEST after an evacuation that was committed before the journal was read; None = there was none.

    A pin keeps what was evacuated from being removed, not from being committed. Then records are in clusters
    that `state` does not list, which does no harm until the journal shows that some were taken from there:
    it holds these a second time. A cluster that has ended is not listed either, but was taken from before:
    each edit holds the sequence up to which all was durable.
    """
    unlisted = journal.taken_at.keys() - journal.clusters(state).keys()
    if not any(journal.taken_at[name] > state.sequence for name in unlisted):
        return None
    now = read_manifest()
    # Clusters are added by an evacuation or, while no server runs, by an import.
    added = not now.clusters.keys() <= state.clusters.keys()
    return now if added or now.first_live != state.first_live else None


def check_not_freed(
    state: ManifestState, read: Collection[int], damaged: bool, read_manifest: ReadManifest
) -> None:
    """See that no segment of `state` was freed before it was read.

    `read` has the numbers of those that were, none where reading failed. What is damaged may be of a file
    that was reused. Raises StoreBusy.
    """
    failed = damaged or not read
    if not failed and min(read) == state.first_live:
        return
    first_live = read_manifest().first_live
    if first_live != state.first_live and (failed or min(read) >= first_live):
        raise StoreBusy(MOVED_ON)


def open_segment(disk: Disk, segment: Segment) -> int:
    """A descriptor of a segment that was read before. Raises StoreBusy when it is gone."""
    try:
        return disk.open(segment.path, os.O_RDONLY)
    except FileNotFoundError as error:
        raise StoreBusy(MOVED_ON) from error


def check_same(disk: Disk, fd: int, segment: Segment) -> None:
    """Raises StoreBusy when the file has been reused since the segment was read.

    Call it after octets were read, for a segment's header is written before its frames.
    """
    if segment_header.unpack(disk.pread(fd, segment_header.HEADER_SIZE, 0)) != segment.header:
        raise StoreBusy(MOVED_ON)


def check_not_ended(state: ManifestState, name: str, read_manifest: ReadManifest) -> None:
    """See that a cluster whose file is gone is lost, not ended: its file goes after the edit that ends it.

    One that `state` does not list was made by a frame since, and is listed or ended by the next evacuation.
    Raises StoreBusy.
    """
    now = read_manifest()
    was_listed = name in state.clusters or now.first_live != state.first_live
    if was_listed and name not in now.clusters:
        raise StoreBusy(MOVED_ON)
