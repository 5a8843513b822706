"""Reads for the event loop: at once from the page cache, else in a thread."""

from __future__ import annotations

from concurrent.futures import Executor

from mqcd.disk.durable import Disk
from mqcd.disk.uncancellable import in_thread


async def read(disk: Disk, executor: Executor, fd: int, octets: int, offset: int) -> bytes:
    """Octets at an offset; fewer only at the end of the file. Raises OSError.

    The caller keeps `fd` open until this returns, which after a cancellation is when the thread is done.
    """
    # Most of what a queue reads has just been written: a thread would cost more than the read.
    data = disk.pread_cached(fd, octets, offset)
    if data is None or len(data) < octets:
        data = await in_thread(executor, disk.pread, fd, octets, offset)
    return data
