"""What a start writes, once more with the room of a reserve file, where the disk is full."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.queue.disk.reserve import give_up, reserve_paths, wants_room
from mqcd.queue.memory.shard_state import Shard

Done = TypeVar("Done")
_MENDED_S = 5
"""How long, s, a start waits for a journal that has been given room: it tries a new segment after 1 s."""


async def with_reserve(shard: Shard, work: Callable[[], Awaitable[Done]]) -> Done:
    """Do `work`; once more when it finds no room and a reserve file went, after the journal tried a new
    segment, if it was the journal's."""
    try:
        return await work()
    except (OSError, StoreUnavailable) as error:
        if not (wants_room(error) and give_up(shard.disk, reserve_paths(shard.queue_root, shard.spool_root))):
            raise
        mended = asyncio.Event()
        shard.journal.trouble.when_certain(mended.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MENDED_S):
                await mended.wait()
        return await work()
