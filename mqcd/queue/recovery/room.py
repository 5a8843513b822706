"""What a start writes though the disk is full: with the room of a reserve file (`queue.disk.reserve`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mqcd.queue.disk.reserve import or_with_reserve
from mqcd.queue.memory.shard_state import Shard

Done = TypeVar("Done")
_MENDED_S = 5
"""How long, s, a start waits for a journal that has been given room: it tries a new segment after 1 s."""


async def with_reserve(shard: Shard, work: Callable[[], Awaitable[Done]]) -> Done:
    """Do `work`; if it finds no room and a reserve file could be removed, do it once more, when the journal
    can be written again. Raises what the last `work` raises."""

    async def again() -> Done:
        mended = asyncio.Event()
        shard.journal.trouble.when_certain(mended.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MENDED_S):
                await mended.wait()
        return await work()

    return await or_with_reserve(shard.disk, shard.queue_root, shard.spool_root, work, again)
