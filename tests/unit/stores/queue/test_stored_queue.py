"""A queue over documents that closes, or whose store fails, while it reads what the last run left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Key
from mqcd.stores.backend import Stored
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.shared_store import SharedStore, SharedWorld


class Silent(MappingStore):
    """It is asked for its messages, and does not answer."""

    async def take(self, most: int) -> Sequence[Stored]:
        await asyncio.Event().wait()
        return ()


class CutOff(SharedStore):
    """It is gone once it is open."""

    async def take(self, most: int) -> Sequence[Stored]:
        raise StoreUnavailable("the network is cut")


@pytest.fixture
async def reading() -> AsyncIterator[StoredQueue]:
    queue = StoredQueue(Silent(), FakeClock(), RecordingObserver(), SCHEDULE)
    await queue.open()
    yield queue
    await queue.close()


async def with_key(queue: StoredQueue) -> None:
    post = Post(queue, FakeClock())
    await queue.enqueue(post.submission("a@example.org", key=Key(name=b"a name of 16 oct")))


@pytest.mark.parametrize("asked", [StoredQueue.recovered, with_key])
async def test_a_close_while_it_is_read_cancels_no_caller(
    reading: StoredQueue, asked: Callable[[StoredQueue], Awaitable[None]]
) -> None:
    waiting = asyncio.ensure_future(asked(reading))
    await asyncio.sleep(0)
    await reading.close()
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_a_store_that_cannot_be_read_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    queue = StoredQueue(CutOff(SharedWorld()), FakeClock(), RecordingObserver(), SCHEDULE)
    await queue.open()
    with pytest.raises(StoreUnavailable, match="cut"):
        await queue.recovered()
    await queue.close()
    assert not caplog.records
