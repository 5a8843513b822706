"""One server on a store that several share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from mqcd.stores.backend import Backend
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.queue.taking import POLL_MS
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver

S = TypeVar("S", bound=Backend)


class StoreNode(Generic[S]):
    """Its queue, and what the tests look at."""

    def __init__(self, store: S) -> None:
        self.clock = FakeClock()
        self.observer = RecordingObserver()
        self.store = store
        self.queue = StoredQueue(store, self.clock, self.observer, SCHEDULE)
        self.post = Post(self.queue, self.clock)

    async def start(self) -> Post:
        await self.queue.open()
        await self.queue.recovered()
        return self.post

    async def until(self, condition: Callable[[], bool]) -> None:
        """It looks for mail of others until that holds."""
        async with asyncio.timeout(60):
            while not condition():
                await self.clock.run_for(POLL_MS)
