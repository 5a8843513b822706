"""The spool: contents that outlive the journal, one file per message, in its silos.

Promise: a file `<SPID>.msg` in its silo, or `<SPID>-<QID>.msg` for a recipient that has a name of its own,
is whole and durable; what is still being written ends in `.tmp`. Handles stay readable when the name is
unlinked.

Setting read: `hardlinks`, at the start and for new messages alone: for all others the record says whether
its content has one name or many. Names of one content are hard links where the file system has them, and
copies where it has not or has no more (`place`), so that mail in the queue outlives any change of either.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from mqcd.core.errors import ConfigError, ContentUnavailable
from mqcd.disk.durable import TEMP_SUFFIX, Disk, describe, let_go
from mqcd.disk.waits import in_thread, read_at
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.segments import Segment

log = logging.getLogger(__name__)

READ_AHEAD = 1 << 18
"""Octets read from a spool file at once."""
_NO_LINK = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))
"""No links at all on this file system, or no more of this file."""


def place(disk: Disk, temp: Path, paths: Sequence[Path]) -> None:
    """Give a whole and durable file its names; they are durable when their silo has been synced.

    The temporary name becomes the last of them. Raises OSError; then some of the names may be there.
    """
    source = temp
    for path in paths[:-1]:
        try:
            # It does not return False (the name is there): callers give names that are missing
            # (`helper.jobs._is_done`), or those of a new message.
            disk.link(source, path)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            _copy(disk, source, path)
            # It has room for links of its own, where there are links at all.
            source = path
    disk.rename(temp, paths[-1])


def _copy(disk: Disk, source: Path, path: Path) -> None:
    temp = path.with_suffix(TEMP_SUFFIX)
    fd = disk.open(source, os.O_RDONLY)
    try:
        copy = disk.create(temp)
        try:
            at = 0
            while data := disk.pread(fd, READ_AHEAD, at):
                at += disk.pwritev(copy, [data], at)
            disk.datasync(copy)
        finally:
            disk.close(copy)
        disk.rename(temp, path)
    except OSError:
        # On a full disk others need the room.
        with suppress(OSError):
            disk.unlink(temp)
        raise
    finally:
        disk.close(fd)


def check_links(disk: Disk, root: Path) -> None:
    """See that the spool's file system has hard links. Raises ConfigError when it has not, OSError."""
    first, second = root / f"links-1{TEMP_SUFFIX}", root / f"links-2{TEMP_SUFFIX}"
    disk.write_temp(first, [b"to see whether there are hard links\n"], sync=False)
    try:
        disk.unlink(second)
        disk.link(first, second)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        raise ConfigError(
            f"{root}: this file system takes no hard links ({error.strerror}). "
            "Set mta/queue/spool/hardlinks to N, or put the spool on a file system that has them."
        ) from error
    finally:
        disk.unlink(second)
        disk.unlink(first)


class SegmentContent:
    """Content that lies in a journal segment; pins the segment's file until it is closed."""

    def __init__(self, disk: Disk, executor: Executor, segment: Segment, offset: int, length: int) -> None:
        self._disk = disk
        self._executor = executor
        self._segment: Segment | None = segment
        self._next = offset
        self._end = offset + length
        self.size = length
        segment.pin()

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._segment is None:
            raise ValueError("read from a closed content")
        want = min(octets, self._end - self._next)
        if want <= 0:
            return b""
        try:
            data = await read_at(self._disk, self._executor, self._segment.fd, want, self._next)
        except OSError as error:
            raise ContentUnavailable(describe(error)) from error
        self._next += len(data)
        return data

    def close(self) -> None:
        """Release the segment; the last reader of a retired one closes its file."""
        segment, self._segment = self._segment, None
        if segment is not None and (fd := segment.unpin()) >= 0:
            let_go(self._disk, fd, "a journal file that is free")


class SpoolContent:
    """Content that lies in a spool file."""

    @classmethod
    async def open(cls, disk: Disk, executor: Executor, path: Path, size: int) -> SpoolContent:
        """Make one in a thread: a disk that hangs must not stop the loop. Raises as that does."""
        return await in_thread(executor, cls, disk, executor, path, size, unwanted=cls.close)

    def __init__(self, disk: Disk, executor: Executor, path: Path, size: int) -> None:
        """`size` is what the records say. Blocks. Raises OSError, and ContentUnavailable for a file of
        another length: what is left of a message must not go out as the message."""
        self._disk = disk
        self._executor = executor
        self._path = path
        self._next = 0
        self._fd = disk.open(path, os.O_RDONLY)
        try:
            self.size = disk.size(self._fd)
        except OSError:
            self.close()
            raise
        if self.size != size:
            self.close()
            raise ContentUnavailable(f"{path} is {self.size} octets long; its records say {size}")

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._fd < 0:
            raise ValueError("read from a closed content")
        want = min(octets, READ_AHEAD, self.size - self._next)
        if not want:
            return b""
        try:
            data = await read_at(self._disk, self._executor, self._fd, want, self._next)
        except OSError as error:
            raise ContentUnavailable(describe(error)) from error
        self._next += len(data)
        return data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            let_go(self._disk, fd, "a content that was read")


class Draft:
    """A large message on its way into the spool; owned by one `enqueue`."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        silos: Silos,
        spid: int,
        links: int,
        bufsize: int,
        claim_room: Callable[[int], None],
    ) -> None:
        """`links` names, one for each recipient; 0 = one name for all. Blocks, and raises OSError.

        `claim_room` is called before each write with its octets; what it raises passes through.
        """
        self._claim_room = claim_room
        self._disk = disk
        self._executor = executor
        self._paths = [silos.path(spid, qid) for qid in (range(1, links + 1) if links else (0,))]
        self._temp = silos.path(spid).with_suffix(TEMP_SUFFIX)
        self._bufsize = bufsize
        self._fd = disk.open(self._temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self.size = 0
        self._buffers: list[bytes] = []
        self._buffered = 0

    async def fill(self, start: list[bytes], rest: AsyncIterator[bytes] | None) -> None:
        """Write `start`, then what `rest` gives; never holds more than a buffer and a chunk."""
        for chunk in start:
            self._take(chunk)
        await self._write()
        if rest is None:
            return
        async for chunk in rest:
            self._take(chunk)
            if self._buffered >= self._bufsize:
                await self._write()
        await self._write()

    def _take(self, chunk: bytes) -> None:
        self._buffers.append(chunk)
        self._buffered += len(chunk)

    async def _write(self) -> None:
        if self._buffers:
            self._claim_room(self._buffered)
            await in_thread(self._executor, self._disk.pwritev, self._fd, self._buffers, self.size)
            self.size += self._buffered
            self._buffers, self._buffered = [], 0

    async def commit(self) -> None:
        """Make the file durable under its name."""

        def finish() -> None:
            self._disk.datasync(self._fd)
            # Gone also if that is an error: the number may soon be another file's.
            fd, self._fd = self._fd, -1
            self._disk.close(fd)
            place(self._disk, self._temp, self._paths)
            self._disk.sync_dir(self._temp.parent)

        await in_thread(self._executor, finish)

    def discard(self) -> None:
        """Leave nothing behind: neither the unfinished file nor any name of the finished one.

        What cannot be removed now has no owner: the next sweep removes it.
        """
        fd, self._fd = self._fd, -1
        if fd >= 0:
            let_go(self._disk, fd, "a message that was not accepted")
        for path in (self._temp, *self._paths):
            try:
                self._disk.unlink(path)
            except OSError as error:
                log.warning("a message that was not accepted leaves a file behind: %s", describe(error))
