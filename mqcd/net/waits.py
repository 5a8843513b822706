"""Waits with a limit, by the port `Clock`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from mqcd.core.ports import Clock

Result = TypeVar("Result")


async def in_time(clock: Clock, ms: int, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` gives. Raises TimeoutError, and cancels it, when it takes longer."""
    working, limit = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(ms))
    try:
        await asyncio.wait((working, limit), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise TimeoutError(f"nothing came within {ms} ms")
        return working.result()
    finally:
        working.cancel()
        limit.cancel()
