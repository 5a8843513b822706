"""Waiting for what cannot be called back: a thread's work, or a frame on its way to the disk.

Whoever is cancelled meanwhile, be it more than once, has to stay until it is done, for what comes next goes
by what it has left: a descriptor that is closed under a thread may be another file's a moment later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


async def uncancellable(future: asyncio.Future[Any]) -> None:
    """Return when `future` is done, however it ended. For one who has been cancelled, before that goes on."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
