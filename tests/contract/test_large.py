"""The largest mail: a content of 100 MB, and a message with 10,000 recipients."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest

from mqcd.core.ports import QueueStore
from tests.contract.harness import ClusterHarness, Harness
from tests.contract.mail import Post, delivered

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHUNK = bytes(range(256)) * 1024
CHUNKS = 400
RECIPIENTS = 10_000
AT_ONCE = 500


@pytest.fixture
def harness(harness: Harness) -> Harness:
    """One record of the journal holds a whole message, and segments several records."""
    if isinstance(harness, ClusterHarness):
        harness.segmentsize = 16 << 20
    return harness


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(CHUNKS):
        yield CHUNK


async def test_a_content_of_100_mb_comes_back(store: QueueStore, post: Post) -> None:
    expected = hashlib.sha256()
    for _ in range(CHUNKS):
        expected.update(CHUNK)
    [recipient] = await store.enqueue(post.submission("a@example.org", content=chunks()))
    found = hashlib.sha256()
    content = await store.content(recipient)
    assert content.size == CHUNKS * len(CHUNK) == 100 << 20
    while octets := await content.read(1 << 18):
        found.update(octets)
    content.close()
    assert found.digest() == expected.digest()
    [claimed] = await post.claim_all()
    await post.settle(delivered(), claimed)
    assert await post.scan() == {}


async def test_10000_recipients_leave_in_groups(store: QueueStore, harness: Harness, post: Post) -> None:
    taken = await post.send(*(f"r{number}@d{number % 100}.example" for number in range(RECIPIENTS)))
    assert len(taken) == RECIPIENTS
    done = 0
    while claimed := await store.claim(AT_ONCE, harness.clock.now()):
        await store.begin(claimed, "mx.example.org")
        await post.settle(delivered(), *claimed)
        done += len(claimed)
    assert done == RECIPIENTS
    assert await post.scan() == {}
