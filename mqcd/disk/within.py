"""Waits with a time limit: a disk may never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from mqcd.core.ports import Clock

HUNG_MS = 30_000
"""A stop does not wait longer than this for a disk."""


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
