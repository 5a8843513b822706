"""Long work on the event loop in turns of bounded length, so that mail in hand does not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

AT_ONCE = 250
"""Entries that are handled in one turn of the loop: a few microseconds each, a millisecond in all."""


async def slices(items: Sequence[Item]) -> AsyncGenerator[Sequence[Item], None]:
    """Parts of `items` in order, one in each turn of the loop."""
    for start in range(0, len(items), AT_ONCE):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + AT_ONCE]
