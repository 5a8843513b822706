"""The committer: the thread that writes groups of frames and syncs them, one after another.

It decides nothing: what to write and where is in a `Write`, and the error, if any, goes back to the loop.
Also an error of its own: it ends the thread, which its process hears of, and fails this write and all later
ones. So nothing waits for what never comes, a stop neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from mqcd.disk.durable import Disk
from mqcd.queue.format import segment_header
from mqcd.queue.wal.segments import Segment

log = logging.getLogger(__name__)

_LEAST = 1 << 18
_MOST = 1 << 22
"""Octets of a file that are filled at once, unless a group needs more."""
_BROKEN = "The thread that writes it has failed, the log says how; only a restart helps"


@dataclass(slots=True)
class Write:
    """What the committer does in one go: make the file of a new segment, write, sync."""

    segment: Segment
    fresh: bool
    recycled: Path | None
    """A file for a new segment to use; without it a new one is made."""
    capacity: int
    buffers: list[bytes]
    offset: int
    end: int
    """Where the last of them ends."""


class Committer(Protocol):
    """Writes and syncs."""

    def submit(self, write: Write, done: Callable[[OSError | None], None]) -> None:
        """Write and sync; `done` is called on the loop, later, with the error or None."""

    def stop(self) -> asyncio.Future[None]:
        """Take no more; the future is done when what was submitted is, or an error has ended the thread. A
        disk that hangs keeps it waiting."""


class CommitterThread:
    """The thread that writes and syncs."""

    def __init__(self, disk: Disk, loop: asyncio.AbstractEventLoop) -> None:
        self._disk = disk
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Write, Callable[[OSError | None], None]] | None] = SimpleQueue()
        self._broken: OSError | None = None
        """What every write fails with since the thread has failed."""
        self._ended = loop.create_future()
        self._thread = threading.Thread(target=self._run, name="mqcd-committer", daemon=True)
        self._thread.start()

    def submit(self, write: Write, done: Callable[[OSError | None], None]) -> None:
        """See `Committer`."""
        if self._broken is None:
            self._jobs.put((write, done))
        else:
            self._loop.call_soon(done, self._broken)

    def stop(self) -> asyncio.Future[None]:
        """See `Committer`."""
        self._jobs.put(None)
        return self._ended

    def _end(self) -> None:
        # It has left the disk. What ended it is reported when this returns.
        self._thread.join()
        if not self._ended.done():
            self._ended.set_result(None)

    def _run(self) -> None:
        try:
            self._write_all()
        finally:
            self._loop.call_soon_threadsafe(self._end)

    def _write_all(self) -> None:
        """Until `stop` says so, or an error of its own."""
        while (job := self._jobs.get()) is not None:
            write, done = job
            error: OSError | None = None
            try:
                perform(self._disk, write)
            except OSError as caught:
                error = caught
            except BaseException:
                log.critical("the journal's writer has failed", exc_info=True)
                self._broken = OSError(errno.EIO, _BROKEN)
                self._loop.call_soon_threadsafe(done, self._broken)
                raise
            self._loop.call_soon_threadsafe(done, error)


def perform(disk: Disk, write: Write) -> None:
    """Do what `write` says; raises OSError."""
    segment = write.segment
    if write.fresh:
        _open_file(disk, write)
    if segment.filled < write.end:
        _fill(disk, write)
    disk.pwritev(segment.fd, write.buffers, write.offset)
    disk.datasync(segment.fd)


def _open_file(disk: Disk, write: Write) -> None:
    """Give the segment its file, and the file its name, before anything of the segment is written."""
    segment = write.segment
    try:
        if write.recycled is None:
            segment.fd = disk.create(segment.path)
        else:
            disk.rename(write.recycled, segment.path)
            segment.fd = disk.open(segment.path, os.O_RDWR)
        if disk.size(segment.fd) < write.capacity:
            # All of it at once: no later group shall find that there is no room for it.
            disk.reserve(segment.fd, write.capacity)
    except OSError:
        # Others need the room on a full disk, and a file that has failed is never used again.
        for path in filter(None, (segment.path, write.recycled)):
            with contextlib.suppress(OSError):
                disk.unlink(path)
        raise
    segment.filled = disk.filled(segment.fd)
    # Before the header: until then a file that keeps its old name after a crash has an evacuated segment's.
    disk.sync_dir(segment.path.parent)
    write.buffers.insert(0, segment_header.pack(segment.header))
    write.offset = 0


def _fill(disk: Disk, write: Write) -> None:
    """Fill a stretch of a file that was not made ready ahead, and sync it before the frames that go there.

    A frame in space that was never written is lost when ext4 aborts its journal while the frame is synced:
    the sync may report success. The stretches grow, so that the first mail waits for a short one and the
    later groups for few.
    """
    segment = write.segment
    stretch = min(max(_LEAST, segment.filled), _MOST)
    end = min(write.capacity, max(write.end, segment.filled + stretch))
    disk.zero_fill(segment.fd, segment.filled, end)
    segment.filled = end
