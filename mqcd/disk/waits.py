"""Waits for a disk: that a cancellation does not cut short, that have a limit, and reads that need none.

A cancelled caller returns once the work of a thread is done, or a frame on its way to the disk: a descriptor
closed while a thread uses it could become another file's a moment later. A disk may never answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

HUNG_MS = 30_000
"""A stop does not wait longer than this for a disk."""


async def uncancellable(future: asyncio.Future[Any]) -> None:
    """Return when `future` is done, however it ended. For a caller that has been cancelled."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


async def in_thread(
    executor: Executor,
    function: Callable[[*Args], Result],
    *args: *Args,
    unwanted: Callable[[Result], object] | None = None,
) -> Result:
    """Call `function` in a thread and return its result; a cancellation takes effect once it has returned.
    `unwanted` is called with a result that a cancelled caller does not get."""
    work = executor.submit(function, *args)
    try:
        return await asyncio.wrap_future(work)
    except asyncio.CancelledError:
        # A thread that runs is not cancelled with the future that waited for it.
        again = asyncio.wrap_future(work)
        await uncancellable(again)
        if unwanted is not None and not again.cancelled() and again.exception() is None:
            unwanted(again.result())
        raise


async def within(clock: Clock, ms: int, work: Awaitable[Any]) -> bool:
    """Wait for `work` up to the limit; returns whether it is done. Its exceptions pass through.

    Work that is not done goes on, for a call on the disk cannot be cancelled.
    """
    working = asyncio.ensure_future(work)
    limit = asyncio.ensure_future(clock.sleep(ms))
    try:
        await asyncio.wait((working, limit), return_when=asyncio.FIRST_COMPLETED)
    finally:
        limit.cancel()
        await asyncio.wait((limit,))
    if working.done():
        working.result()
    return working.done()


async def read_at(disk: Disk, executor: Executor, fd: int, octets: int, offset: int) -> bytes:
    """Octets at an offset: at once from the page cache, else in a thread. Fewer only at the end of the file.
    Raises OSError.

    The caller keeps `fd` open until this returns, which after a cancellation is when the thread is done.
    """
    # Most of what a queue reads has just been written: a thread would cost more than the read.
    data = disk.pread_cached(fd, octets, offset)
    if data is None or len(data) < octets:
        data = await in_thread(executor, disk.pread, fd, octets, offset)
    return data
