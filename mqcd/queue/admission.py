"""Slows down new mail, then refuses it, while the journal fills quicker than it is emptied.

* From three quarters on, each message waits for a segment to be freed, `NEARLY_FULL_MS` at most.
* When no slot is left for new mail, it waits for up to `BEHIND_MS`, as long as the evacuation is merely
  behind. Where it has failed, waiting would not help, and each request is refused at once.

A client waits ten minutes for the reply to its final dot (RFC 5321, 4.5.3.2.6); a refusal costs it a retry
after a quarter of an hour or so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mqcd.queue.checkpoint.checkpointer import Checkpointer
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.pending import JournalFull

NEARLY_FULL_MS = 500
BEHIND_MS = 5000

Written = TypeVar("Written")


class Pressure:
    """One shard's."""

    def __init__(self, shard: Shard, checkpointer: Checkpointer) -> None:
        self._shard = shard
        self._checkpointer = checkpointer
        self.patience_ms = BEHIND_MS
        """How long new mail waits for room in a full journal."""

    @property
    def high(self) -> bool:
        """Whether new mail is to be slowed down. While the last run's mail is read nothing can be evacuated,
        and waiting would help nobody."""
        ring = self._shard.ring
        return ring.free_slots * 4 <= ring.slots and self._shard.ready

    async def ease(self) -> None:
        """Slow a message down before it is taken in."""
        if self._shard.ring.full:
            await self._room()
        else:
            await self._checkpointer.relief(NEARLY_FULL_MS)

    async def through(self, write: Callable[[], Awaitable[Written]]) -> Written:
        """Write a frame of new mail; once more where the journal had no room for it, and gets it in time."""
        try:
            return await write()
        except JournalFull:
            if not self._shard.ready:
                raise
            await self._room()
            return await write()

    async def _room(self) -> None:
        """Wait for a slot that new mail may use."""
        loop, ring, checkpointer = asyncio.get_running_loop(), self._shard.ring, self._checkpointer
        end = loop.time() + self.patience_ms / 1000
        while ring.full and not checkpointer.trouble and (left := end - loop.time()) > 0:
            await checkpointer.relief(int(left * 1000) + 1)
