"""A queue over documents that closes, or whose store fails, while it reads what the last run left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Key
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.stores.backend import Marks, Stored, Write
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.exporting import EventFiles
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


class Counting(MappingStore):
    """Counts opens and closes, which wait until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.opens = self.closes = 0
        self.let = asyncio.Event()

    async def open(self) -> Marks:
        self.opens += 1
        await self.let.wait()
        return await super().open()

    def write(self, write: Write) -> asyncio.Future[Sequence[int]]:
        return asyncio.ensure_future(self._write(write))

    async def _write(self, write: Write) -> Sequence[int]:
        await self.let.wait()
        return await super().write(write)

    async def close(self) -> None:
        self.closes += 1
        await self.let.wait()
        await super().close()


async def test_two_opens_at_once_are_one() -> None:
    store = Counting()
    queue = StoredQueue(store, FakeClock(), RecordingObserver(), SCHEDULE)
    opening = asyncio.gather(queue.open(), queue.open())
    await asyncio.sleep(0)
    store.let.set()
    await opening
    await queue.recovered()
    await queue.close()
    assert (store.opens, store.closes) == (1, 1)


@pytest.mark.parametrize("writes", [False, True])
async def test_a_close_that_is_cancelled_goes_on(writes: bool) -> None:
    store = Counting()
    store.let.set()
    clock = FakeClock()
    queue = StoredQueue(store, clock, RecordingObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    store.let.clear()
    sending = asyncio.ensure_future(Post(queue, clock).send("a@example.org")) if writes else None
    await asyncio.sleep(0)
    cancelled = asyncio.ensure_future(queue.close())
    await asyncio.sleep(0.01)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    others = [asyncio.ensure_future(each) for each in (queue.close(), queue.open())]
    await asyncio.sleep(0.01)
    assert not any(each.done() for each in others)
    store.let.set()
    await asyncio.gather(*others)
    assert (store.opens, store.closes) == (2, 1)
    if sending is not None:
        assert len(await sending) == 1
    await queue.close()


async def test_a_close_that_fails_releases_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise RuntimeError("a fault")

    store = Counting()
    store.let.set()
    queue = StoredQueue(store, FakeClock(), RecordingObserver(), SCHEDULE)
    await queue.open()
    monkeypatch.setattr(queue._live, "idle", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        await queue.close()
    assert store.closes == 1


async def test_a_close_ends_what_is_being_opened(tmp_path: Path) -> None:
    store = Counting()
    files = EventFiles(directory=tmp_path, source=Source("node", 0), retention=Retention())
    queue = StoredQueue(store, FakeClock(), RecordingObserver(), SCHEDULE, files)
    opening, closing = (asyncio.ensure_future(each) for each in (queue.open(), queue.close()))
    await asyncio.sleep(0.01)
    assert not closing.done()
    store.let.set()
    await asyncio.gather(opening, closing)
    assert (store.opens, store.closes) == (1, 1)
    assert queue.refusing()


async def test_a_reload_while_it_is_opened_counts() -> None:
    store = Counting()
    queue = StoredQueue(store, FakeClock(), RecordingObserver(), SCHEDULE)
    opening = asyncio.ensure_future(queue.open())
    await asyncio.sleep(0)
    schedule = replace(SCHEDULE, maxtime=1)
    queue.reload(schedule)
    store.let.set()
    await opening
    assert queue._live.schedule is schedule
    await queue.close()


@pytest.mark.parametrize("is_before", [False, True])
async def test_what_is_not_open_answers_no_question(tmp_path: Path, is_before: bool) -> None:
    files = EventFiles(directory=tmp_path, source=Source("node", 0), retention=Retention())
    queue = StoredQueue(MappingStore(), FakeClock(), RecordingObserver(), SCHEDULE, files)
    if not is_before:
        await queue.open()
        assert await queue.changed_by("a batch", 0) == 0
        await queue.close()
    for asked in (queue.recovered(), queue.changed_by("a batch", 0), queue.history(1)):
        with pytest.raises(StoreUnavailable):
            await asked
    assert not [each for each in threading.enumerate() if each.name.startswith("mqcd-events")]
