"""Refused mail in the stores of documents: their queue removes what a write without an answer has left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.model import Key, Origin, Reported, Settlement
from mqcd.core.selecting.selection import Selection
from mqcd.stores.backend import Write, failed
from mqcd.stores.queue.state import TRY_AGAIN_MS
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.conftest import marked
from tests.contract.harness import HARNESSES, Restart, StoreHarness
from tests.contract.mail import BODY, Post, bounced, chunks

STORES = [
    name for name, (make, _) in HARNESSES.items() if isinstance(make, type) and issubclass(make, StoreHarness)
]


async def opened(name: str, directory: Path) -> tuple[StoreHarness, StoredQueue, Post]:
    """A store by its name, and mail for it."""
    harness = HARNESSES[name][0](directory)
    assert isinstance(harness, StoreHarness)
    store = await harness.start()
    assert isinstance(store, StoredQueue)
    return harness, store, Post(store, harness.clock)


def unanswered(write: asyncio.Future[Sequence[int]]) -> asyncio.Future[Sequence[int]]:
    """A write that is made, and whose answer is lost."""

    async def lost() -> Sequence[int]:
        await write
        raise StoreUnavailable("no answer")

    return asyncio.ensure_future(lost())


@pytest.mark.parametrize("name", list(map(marked, STORES)))
async def test_mail_refused_for_want_of_an_answer_goes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, store, post = await opened(name, tmp_path)
    backend = store._around.backend
    write = backend.write

    def lossy(changes: Write) -> asyncio.Future[Sequence[int]]:
        if not changes.changes[0].is_new:
            return failed(StoreUnavailable("no answer, nor did it arrive"))
        return unanswered(write(changes))

    [kept] = await post.send("kept@example.org")
    monkeypatch.setattr(backend, "write", lossy)
    key = Key(b"k" * 16, b"d" * 8)
    submissions = [
        post.submission("a@example.org", content=each, key=key) for each in (BODY, chunks(BODY, 99))
    ]
    for each in submissions:
        with pytest.raises(StoreUnavailable):
            await store.enqueue(each)
    monkeypatch.undo()
    await harness.clock.run_for(TRY_AGAIN_MS)
    await store._live.documents.idle()
    for each in submissions:
        with pytest.raises(ContentUnavailable):
            await backend.content(each.envelope.spid)
    again = await harness.restart(Restart.KILL)
    assert isinstance(again, StoredQueue)
    assert [each async for each in again.scan(Selection())] == [kept]
    assert not again._live.keys
    await harness.stop()


@pytest.mark.parametrize("name", list(map(marked, STORES)))
async def test_a_report_stays_whose_bounce_may_have_ended(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, store, post = await opened(name, tmp_path)
    backend = store._around.backend
    write = backend.write
    await post.send("a@example.org")
    await post.settle(bounced(), *await post.claim_all())
    [bounce] = await post.claim_bounces()
    report = post.submission("sender@example.com", sender="", origin=Origin.REPORT)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "write", lambda changes: unanswered(write(changes)))
        with pytest.raises(StoreUnavailable):
            await store.settle(
                [Settlement(recipient=bounce, verdict=Reported(report_spid=report.envelope.spid))], [report]
            )
    await harness.clock.run_for(TRY_AGAIN_MS)
    await store._live.documents.idle()
    again = await harness.restart(Restart.KILL)
    assert [each.spid async for each in again.scan(Selection())] == [report.envelope.spid]
    await harness.stop()
