"""The spool: contents that outlive the journal, one file per message, in 32 silos.

Promise: a file `<SPID>.msg` in its silo is whole and durable; what is still being written ends in `.tmp`.
Handles stay readable when the name is unlinked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.spid import SILOS, format_spid, silo_of
from mqcd.queue.durable import TEMP_SUFFIX, Disk
from mqcd.queue.ring import Segment

READ_AHEAD = 1 << 18
"""Octets read from a spool file at once."""


def silo_path(root: Path, spid: int) -> Path:
    """The directory that holds the message's file."""
    return root / f"s{silo_of(spid):02d}"


def spool_path(root: Path, spid: int) -> Path:
    """The message's file."""
    return silo_path(root, spid) / f"{format_spid(spid)}.msg"


def make_silos(disk: Disk, root: Path) -> None:
    """Make what is missing of the spool's directories."""
    for number in range(1, SILOS + 1):
        disk.mkdir(root / f"s{number:02d}")


class SegmentContent:
    """Content that lies in a journal segment; pins the segment's file until it is closed."""

    def __init__(self, disk: Disk, segment: Segment, offset: int, length: int) -> None:
        self._disk = disk
        self._segment: Segment | None = segment
        self._next = offset
        self._end = offset + length
        self.size = length
        segment.readers += 1

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._segment is None:
            raise ValueError("read from a closed content")
        want = min(octets, self._end - self._next)
        if want <= 0:
            return b""
        try:
            data = self._disk.pread(self._segment.fd, want, self._next)
        except OSError as error:
            raise StoreUnavailable(f"{self._segment.path}: {error.strerror}") from error
        self._next += len(data)
        return data

    def close(self) -> None:
        """Let go of the segment; the last reader of a retired one closes its file."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        segment.readers -= 1
        if segment.retired and not segment.readers and segment.fd >= 0:
            self._disk.close(segment.fd)
            segment.fd = -1


class SpoolContent:
    """Content that lies in a spool file."""

    def __init__(self, disk: Disk, executor: Executor, path: Path) -> None:
        self._disk = disk
        self._executor = executor
        self._path = path
        self._next = 0
        self._fd = disk.open(path, os.O_RDONLY)
        self.size = disk.size(self._fd)

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._fd < 0:
            raise ValueError("read from a closed content")
        loop = asyncio.get_running_loop()
        try:
            data = await loop.run_in_executor(
                self._executor, self._disk.pread, self._fd, min(octets, READ_AHEAD), self._next
            )
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error.strerror}") from error
        self._next += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


class Draft:
    """A large message on its way into the spool; owned by one `enqueue`."""

    def __init__(self, disk: Disk, executor: Executor, root: Path, spid: int, bufsize: int) -> None:
        self._disk = disk
        self._executor = executor
        self._path = spool_path(root, spid)
        self._temp = self._path.with_suffix(TEMP_SUFFIX)
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
            await self._call(self._disk.pwritev, self._fd, self._buffers, self.size)
            self.size += self._buffered
            self._buffers, self._buffered = [], 0

    async def commit(self) -> None:
        """Make the file durable under its name."""

        def finish() -> None:
            self._disk.datasync(self._fd)
            self._close()
            self._disk.rename(self._temp, self._path)
            self._disk.sync_dir(self._path.parent)

        await self._call(finish)

    def discard(self) -> None:
        """Leave nothing behind: neither the unfinished file nor the finished one."""
        self._close()
        self._disk.unlink(self._temp)
        self._disk.unlink(self._path)

    def _close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    async def _call(self, function: object, *args: object) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.run_in_executor(self._executor, function, *args)  # type: ignore[arg-type]
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            # A descriptor must not be closed under the thread that writes to it.
            await asyncio.wait([future])
            raise
