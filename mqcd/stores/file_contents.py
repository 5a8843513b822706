"""What stores on a file system have in common: threads and locks, and contents in files of their own."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreUnavailable
from mqcd.disk.durable import NO_ROOM, Disk, describe
from mqcd.disk.waits import in_thread
from mqcd.stores.backend import Exclusive, Marks, Stored, StoreFull

Args = TypeVarTuple("Args")
Item = TypeVar("Item")
Result = TypeVar("Result")


_LOCK = "queue.lock"
_THREADS = 8
"""Files that are synced at once."""


class Threads:
    """The threads of a store: what they do raises StoreUnavailable where the disk fails."""

    def __init__(self, most: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(most, name)
        self._closed = False

    async def run(self, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what `work` does; a cancellation takes effect once it has returned."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return await in_thread(self._executor, work, *args)
        except OSError as error:
            raise (StoreFull if error.errno in NO_ROOM else StoreUnavailable)(describe(error)) from error

    async def each(self, work: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Do work for each; returns when none of it is under way, also where one fails."""
        runs = [self.run(work, item) for item in items]
        for ended in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    def close(self) -> None:
        """Nothing is under way any more."""
        self._closed = True
        self._executor.shutdown()


class FileStore(Exclusive):
    """A store in directories, each locked while it is open."""

    def __init__(self, disk: Disk | None) -> None:
        self._disk = disk or Disk()
        self._threads = Threads(1, "mqcd-files")
        self._locks: list[int] = []
        self._left: list[int] = []
        """Messages that were not taken yet."""

    async def open(self) -> Marks:
        """Raises ConfigError, StoreBusy, StoreDamaged."""
        self._threads = Threads(_THREADS, "mqcd-files")
        try:
            return await self._threads.run(self._open)
        except BaseException:
            await self.close()
            raise

    @abstractmethod
    def _open(self) -> Marks:
        """In a thread: lock and read the directories."""

    def _lock(self, directory: Path) -> None:
        """Until it is closed. Raises StoreBusy."""
        self._locks.append(self._disk.open(directory / _LOCK, os.O_RDWR | os.O_CREAT))
        if not self._disk.lock(self._locks[-1], exclusive=True):
            raise StoreBusy(f"{directory} belongs to another store or process")

    async def close(self) -> None:
        """Release the directories."""
        locks, self._locks = self._locks, []
        for fd in locks:
            self._disk.close(fd)
        self._threads.close()

    async def take(self, most: int) -> Sequence[Stored]:
        """Messages by SPID."""
        spids, self._left = self._left[:most], self._left[most:]
        return await self._threads.run(lambda: [self._read(spid) for spid in spids])

    @abstractmethod
    def _read(self, spid: int) -> Stored:
        """In a thread: the message as it was left."""


async def write_chunks(disk: Disk, threads: Threads, path: Path, chunks: AsyncIterator[bytes]) -> int:
    """Write a new file, durable but for its name; returns its octets.

    Raises StoreUnavailable, and what the iterator raises; then there is no file.
    """
    fd = await threads.run(disk.create, path)
    size = 0
    try:
        try:
            async for chunk in chunks:
                size += await threads.run(disk.pwritev, fd, [chunk], size)
            await threads.run(disk.datasync, fd)
        finally:
            disk.close(fd)
    except BaseException:
        await threads.run(disk.unlink, path)
        raise
    return size


class FileContent:
    """An open file; it stays readable when its name is gone."""

    def __init__(self, disk: Disk, threads: Threads, path: Path) -> None:
        """Raises ContentUnavailable."""
        self._disk = disk
        self._threads = threads
        self._path = path
        self._next = 0
        try:
            self._fd = disk.open(path, os.O_RDONLY)
            self.size = disk.size(self._fd)
        except OSError as error:
            raise ContentUnavailable(describe(error)) from error

    async def read(self, octets: int) -> bytes:
        """The next octets; b"" at the end."""
        if self._fd < 0:
            raise ValueError("read from a closed content")
        try:
            data = await self._threads.run(self._disk.pread, self._fd, octets, self._next)
        except StoreUnavailable as error:
            raise ContentUnavailable(str(error)) from error
        self._next += len(data)
        if not data and self._next < self.size:
            raise ContentUnavailable(f"{self._path}: it was cut off at {self._next} of {self.size} octets")
        return data

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)
