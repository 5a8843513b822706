"""Reserve files: room on a disk that is full, for what makes room.

A file of one segment's size lies in the queue root and in the spool root. What is in the journal can be
moved to clusters and spool only while these take it; when they do not, the file goes, the evacuation has
its place, and the slot that it frees lets the mail that is here be delivered. It is made again as soon as
there is room for it above `minfree`. Nothing of it is ever read, and nothing of it needs to be durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import NO_ROOM, Disk, describe

log = logging.getLogger(__name__)

RESERVE = "reserve"
"""Name of the file, below each root."""


Done = TypeVar("Done")


class Reserve:
    """The reserve files of one shard, and which of them are known to be there."""

    def __init__(self, disk: Disk, queue_root: Path, spool_root: Path) -> None:
        self._disk = disk
        self._there = dict.fromkeys(reserve_paths(queue_root, spool_root), False)

    def missing(self) -> list[Path]:
        """Files that are not known to be there."""
        return [path for path, there in self._there.items() if not there]

    def made(self, path: Path) -> None:
        self._there[path] = True

    def give_up_for(self, error: BaseException) -> bool:
        """Whether files were removed, so that what failed for want of room may be tried again at once."""
        if not wants_room(error):
            return False
        self._there = dict.fromkeys(self._there, False)
        return give_up(self._disk, [*self._there])


def reserve_paths(queue_root: Path, spool_root: Path) -> list[Path]:
    """Their places."""
    return [root / RESERVE for root in (queue_root, spool_root)]


def wants_room(error: BaseException) -> bool:
    """Whether a failure is a want of room, or was caused by one (the journal's are)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return True
        cause = cause.__cause__
    return False


def give_up(disk: Disk, paths: Sequence[Path]) -> bool:
    """Remove the files. True when there was one, so that trying again is worth it."""
    gone = False
    for path in paths:
        try:
            if disk.exists(path):
                disk.unlink(path)
                gone = True
                log.warning("%s was given up: the disk is full", path)
        except OSError as error:
            log.error("the reserve file cannot be removed: %s", describe(error))
    return gone


async def or_with_reserve(
    disk: Disk,
    queue_root: Path,
    spool_root: Path,
    work: Callable[[], Awaitable[Done]],
    again: Callable[[], Awaitable[Done]],
) -> Done:
    """Do `work`; `again` where it found no room and a reserve file went. Raises what the last one raises."""
    try:
        return await work()
    except (OSError, StoreUnavailable) as error:
        if not (wants_room(error) and give_up(disk, reserve_paths(queue_root, spool_root))):
            raise
    return await again()
