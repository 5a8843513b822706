"""Whoever is cancelled in the middle of a call leaves nothing undone, doubled or stuck behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mqcd.core.model import Delivered, Envelope, Recipient, Settlement, Submission
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.queue.store import ClusterStore
from tests.contract.mail import ATTEMPT, delivered
from tests.crash.worker import INLINE_MAX, SENDER, body_of, options
from tests.fakes.disk import FaultyDisk
from tests.fakes.observer import RecordingObserver

pytestmark = pytest.mark.crash


def _store(root: Path, disk: Disk | None = None) -> ClusterStore:
    return ClusterStore(options(root, 256 << 10, 8), SystemClock(), RecordingObserver(), disk)


def _submission(store: ClusterStore, many: int, content: bytes | AsyncIterator[bytes]) -> Submission:
    envelope = Envelope(spid=store.reserve(many > 1), sender=SENDER, received=SystemClock().now())
    addresses = [f"u{number}@example.org" for number in range(many)]
    return Submission(envelope=envelope, recipients=addresses, content=content)


async def _drain(store: ClusterStore) -> list[Recipient]:
    found: list[Recipient] = []
    while claimed := await store.claim(100, SystemClock().now()):
        found += claimed
        await store.begin(claimed, ATTEMPT.destination)
        await store.settle([Settlement(recipient=each, verdict=delivered()) for each in claimed])
    return found


class GateDisk(Disk):
    """A disk whose next file sync waits until it is let through."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def shut(self) -> None:
        self._open.clear()

    async def reached(self) -> None:
        """Wait until a sync is being held."""
        await self._reached.wait()

    def let_through(self) -> None:
        self._open.set()

    def datasync(self, fd: int) -> None:
        if not self._open.is_set():
            self._loop.call_soon_threadsafe(self._reached.set)
            self._open.wait()
        super().datasync(fd)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_claim_from_a_cluster_takes_no_line_twice(tmp_path: Path, times: int) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    for _ in range(30):
        await store.enqueue(_submission(store, 2, b"Subject: x\r\n\r\n"))
    await store.close()
    disk = GateDisk()
    store = _store(tmp_path, disk)
    await store.open()
    await store.recovered()
    disk.shut()
    first = asyncio.ensure_future(store.claim(7, SystemClock().now()))
    await disk.reached()
    for _ in range(times):
        first.cancel()
        await asyncio.sleep(0)
    second = asyncio.ensure_future(store.claim(7, SystemClock().now()))
    for _ in range(100):
        await asyncio.sleep(0)
    disk.let_through()
    [outcome] = await asyncio.gather(first, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    kept = list(await second)
    await store.settle([Settlement(recipient=each, verdict=delivered()) for each in kept])
    keys = [each.key for each in kept + await _drain(store)]
    assert len(set(keys)) == len(keys) == 60
    assert not any(area.recipients for area in store.stats().values())
    await store.close()


@pytest.mark.parametrize("turns", [0, 2, 5, 12])
async def test_a_cancelled_large_message_is_queued_whole_or_not(tmp_path: Path, turns: int) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield bytes(INLINE_MAX)
            await asyncio.sleep(0)

    enqueue = asyncio.ensure_future(store.enqueue(_submission(store, 1, chunks())))
    for _ in range(turns):
        await asyncio.sleep(0)
    enqueue.cancel()
    await asyncio.gather(enqueue, return_exceptions=True)
    await store.close()
    files = [path for path in (tmp_path / "spool").rglob("*") if path.suffix in (".msg", ".tmp")]
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    assert len(await _drain(store)) == len(files)
    await store.close()


async def test_a_file_stays_open_as_long_as_a_thread_writes_to_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    gate = disk.block("datasync", "*/s??/*.tmp")
    store = _store(tmp_path, disk)
    await store.open()
    await store.recovered()
    enqueue = asyncio.ensure_future(store.enqueue(_submission(store, 1, bytes(INLINE_MAX + 1))))
    await asyncio.to_thread(gate.reached.wait)
    for _ in range(3):
        enqueue.cancel()
        await asyncio.sleep(0)
    open_until_now = not disk.count("close", "*/s??/*.tmp")
    gate.release()
    [outcome] = await asyncio.gather(enqueue, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    await store.close()
    assert open_until_now
    assert not [path for path in (tmp_path / "spool").rglob("*") if path.suffix in (".msg", ".tmp")]


async def test_a_cancelled_settle_is_settled_all_the_same(tmp_path: Path) -> None:
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    await store.enqueue(_submission(store, 1, body_of(1, 100)))
    claimed = await store.claim(5, SystemClock().now())
    verdict = Delivered(reply=delivered().reply, attempt=ATTEMPT)
    settle = asyncio.ensure_future(_settle(store, claimed[0], verdict))
    await asyncio.sleep(0)
    settle.cancel()
    await asyncio.gather(settle, return_exceptions=True)
    await store.close()
    store = _store(tmp_path)
    await store.open()
    await store.recovered()
    assert not await store.claim(5, SystemClock().now())
    await store.close()


async def _settle(store: ClusterStore, recipient: Recipient, verdict: Delivered) -> None:
    await store.settle([Settlement(recipient=recipient, verdict=verdict)])
