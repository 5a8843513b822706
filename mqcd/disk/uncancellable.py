"""Waits that a cancellation does not cut short: for a thread's work, or a frame on its way to the disk.

A cancelled caller returns once the work is done: a descriptor closed while a thread uses it could become
another file's a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


async def uncancellable(future: asyncio.Future[Any]) -> None:
    """Return when `future` is done, however it ended. For a caller that has been cancelled."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


async def in_thread(executor: Executor, function: Callable[[*Args], Result], *args: *Args) -> Result:
    """Call `function` in a thread and return its result; a cancellation takes effect once it has returned."""
    work = executor.submit(function, *args)
    try:
        return await asyncio.wrap_future(work)
    except asyncio.CancelledError:
        # A thread that runs is not cancelled with the future that waited for it.
        await uncancellable(asyncio.wrap_future(work))
        raise
