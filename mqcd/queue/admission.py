"""Takes new mail in: refuses it, slows it down, has it wait for its key's turn, or has it written.

While the journal fills quicker than it is emptied, new mail is slowed down, then refused:

* From three quarters on, each message waits for a segment to be freed, `NEARLY_FULL_MS` at most.
* When no slot is left for new mail, it waits for up to `BEHIND_MS`, as long as the evacuation is merely
  behind. Where it has failed, waiting would not help, and each request is refused at once.
* The store reports that it refuses mail once evacuation has failed, or a wait was in vain and no segment has
  been freed since.

A client waits ten minutes for the reply to its final dot (RFC 5321, 4.5.3.2.6); a refusal costs it a retry
after a quarter of an hour or so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Key, Recipient, Submission
from mqcd.core.queueing.idempotency import Used
from mqcd.queue.checkpoint.checkpointer import Checkpointer
from mqcd.queue.disk.space import Space
from mqcd.queue.keys.turns import Turn, once
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.accept import Acceptance
from mqcd.queue.requests.staging import Staging
from mqcd.queue.wal.pending import FULL, JournalFull

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
        self._in_vain = -1
        """The oldest segment's number when a wait for room was last in vain; -1 = none was."""

    @property
    def high(self) -> bool:
        """Whether new mail is to be slowed down. While the last run's mail is read nothing can be evacuated,
        and waiting would help nobody."""
        ring = self._shard.ring
        return (ring.free_slots * 4 <= ring.slots or ring.full) and self._shard.ready

    @property
    def hopeless(self) -> bool:
        """Whether a wait for room was in vain, and no segment has been freed since."""
        return self._in_vain == min(self._shard.ring.segments, default=-1) >= 0

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
        if ring.full:
            self._in_vain = min(ring.segments)


class Admission:
    """One shard's."""

    def __init__(
        self,
        shard: Shard,
        checkpointer: Checkpointer,
        space: Space,
        staging: Staging,
        acceptance: Acceptance,
        recovery: asyncio.Task[None],
    ) -> None:
        """`recovery` replays what the last run left."""
        self._shard = shard
        self._checkpointer = checkpointer
        self._space = space
        self._staging = staging
        self._accept = acceptance.accept
        self._recovery = recovery
        self.pressure = Pressure(shard, checkpointer)
        self.closed = False
        """Set when the store begins to close."""

    def refusing(self) -> str:
        """Why no mail is taken now; "" when it is. Space is looked at once a second at most."""
        shard = self._shard
        if self.closed:
            return "the queue is not open"
        if why := shard.journal.stalled:
            return why
        if short := self._space.short():
            return short
        if self._recovery.done() and not shard.ready:
            return f"what the last run left cannot be brought in: {self._recovery.exception()}"
        if not shard.ring.full:
            return ""
        if trouble := self._checkpointer.trouble or shard.helper.trouble:
            return f"{FULL}: {trouble}"
        return FULL if self.pressure.hopeless or not shard.ready else ""

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.enqueue`."""
        # Before anything is written: its file would replace that of another message.
        self._shard.entries.reserved.check([submission.envelope.spid])
        if self.pressure.high:
            await self.pressure.ease()
        if why := self.refusing():
            raise StoreUnavailable(why)
        key = submission.key
        if key is None:
            return await self._take(submission, None)
        turn = self._shard.keys.new(key) if self._shard.ready else None
        if turn is None:
            return await once(submission, await self._turn(key), self._take)
        # As `once` does: nearly all keys are new, and another coroutine would cost a percent.
        try:
            return await self._take(submission, turn)
        finally:
            if turn.holders:
                turn.let_go()

    async def _turn(self, key: Key) -> Turn | Used:
        """What is remembered of a key, or the turn of its use. While the last run's mail is read, not every
        key is known."""
        await asyncio.shield(self._recovery)
        return await self._shard.keys.turn(key)

    def _take(self, submission: Submission, turn: Turn | None) -> Awaitable[Sequence[Recipient]]:
        small = self._staging.in_memory(submission)
        if small is None:
            return self._take_large(submission, turn)
        return self.pressure.through(lambda: self._accept(small, turn))

    async def _take_large(self, submission: Submission, turn: Turn | None) -> Sequence[Recipient]:
        staged = await self._staging.stage(submission)

        async def write() -> Sequence[Recipient]:
            try:
                return await self.pressure.through(lambda: self._accept(staged, turn))
            finally:
                if turn is not None:
                    turn.let_go()

        if turn is not None:
            # The frame may still be written after the caller has been cancelled.
            turn.hold()
        return await self._staging.see_through([staged], write)
