"""Makes mail that waits due at once, by a batch as `mqcd queue retry` makes one, but for its file.

What a close or a kill cuts off stays as far as it has come: some is due at once, the rest when it was.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Action, Batch
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.daemon.control.actions.applying import apply


class Retrying:
    """Of one store."""

    def __init__(self, store: QueueStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._running: set[asyncio.Task[int]] = set()

    async def run(self, selection: Selection) -> int:
        """How many recipients it was. Goes on when the caller is cancelled: what is claimed must be settled.

        Raises StoreUnavailable when the queue is closed meanwhile, or its clusters cannot be changed.
        """
        running = asyncio.create_task(self._carry_out(selection), name="mqcd retry")
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.cancelled():
                raise StoreUnavailable("the queue was closed before all of its mail was due") from None
            raise

    async def close(self) -> None:
        """End those under way."""
        for each in (running := tuple(self._running)):
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _carry_out(self, selection: Selection) -> int:
        now = self._clock.now()
        # No message and no other batch has it: a SPID is reserved once.
        name = f"{Action.RETRY}-{format_spid(self._store.reserve(False))}"
        batch = Batch(id=name, action=Action.RETRY, at=now, by="library", until=now)
        async with aclosing(apply(self._store, self._clock, selection, batch)) as parts:
            return sum([part.changed + len(part.recipients) async for part in parts])
