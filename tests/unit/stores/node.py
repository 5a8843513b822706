"""One server on a store that several share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Origin, Recipient, Settlement
from mqcd.stores.backend import Backend
from mqcd.stores.queue.stored_queue import StoredQueue
from mqcd.stores.queue.taking import POLL_MS
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post, delivered
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


async def fail_to_report(node: StoreNode[Any]) -> set[tuple[int, int]]:
    """Settle a message together with a report when the lease has run out; returns what the queue had."""
    claimed = await node.post.claim_all()
    report = node.post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    with pytest.raises(StoreUnavailable):
        await node.queue.settle(
            [Settlement(recipient=each, verdict=delivered()) for each in claimed], [report]
        )
    await node.queue.close()
    return {each.key for each in claimed}


async def check_begins_again(node: StoreNode[Any], sent: Collection[Recipient]) -> None:
    """Its lease has run out, and it finds out: it gives up what it has, takes it back, and takes new mail."""
    state = node.queue._live
    spids = state.spids
    await node.until(lambda: state.spids is not spids and len(state.documents.messages) == len(sent))
    assert set(await node.post.scan()) == {each.key for each in sent}
    await node.post.send("new@example.org")
    await node.queue.close()
