"""Content: an open handle that gives the message's own octets, whatever else the store does."""

from __future__ import annotations

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Envelope, Recipient
from mqcd.core.ports import QueueStore
from tests.contract.mail import BODY, Post, chunks, delivered, read_all

BIG = bytes(range(251)) * 8000


async def test_all_recipients_share_their_messages_octets(post: Post) -> None:
    for recipient in await post.send("a@example.org", "b@example.org"):
        assert await post.read(recipient) == BODY


@pytest.mark.parametrize("octets", [BODY, BIG], ids=["small", "big"])
async def test_content_says_its_size_and_comes_in_pieces(
    store: QueueStore, post: Post, octets: bytes
) -> None:
    [recipient] = await store.enqueue(post.submission("a@example.org", content=chunks(octets)))
    content = await store.content(recipient)
    assert content.size == len(octets)
    assert await content.read(1) == octets[:1]
    assert await read_all(content) == octets[1:]


@pytest.mark.parametrize("octets", [BODY, BIG], ids=["small", "big"])
async def test_a_handle_stays_readable_after_the_end_of_its_message(
    store: QueueStore, post: Post, octets: bytes
) -> None:
    await store.enqueue(post.submission("a@example.org", content=chunks(octets)))
    [claimed] = await post.claim_all()
    content = await store.content(claimed)
    head = await content.read(10)
    await post.settle(delivered(), claimed)
    for n in range(5):
        await post.send(f"r{n}@example.org", content=b"other" * 10_000)
    assert head + await read_all(content) == octets


async def test_handles_do_not_disturb_one_another(store: QueueStore, post: Post) -> None:
    [first] = await store.enqueue(post.submission("a@example.org", content=chunks(BIG)))
    [second] = await post.send("b@example.org")
    handles = [await store.content(each) for each in (first, first, second)]
    assert await handles[0].read(1000) == BIG[:1000]
    assert await read_all(handles[2]) == BODY
    assert await read_all(handles[1]) == BIG
    assert await read_all(handles[0]) == BIG[1000:]


async def test_content_lives_as_long_as_one_recipient_does(post: Post) -> None:
    await post.send("a@example.org", "b@example.org")
    first, second = await post.claim_all()
    await post.settle(delivered(), first)
    assert await post.read(second) == BODY


async def test_closing_twice_is_harmless(store: QueueStore, post: Post) -> None:
    [recipient] = await post.send("a@example.org")
    content = await store.content(recipient)
    content.close()
    content.close()
    assert await post.read(recipient) == BODY


async def test_a_message_that_never_was_has_no_content(store: QueueStore, post: Post) -> None:
    envelope = Envelope(spid=store.reserve(False), sender="", received=post.clock.now())
    with pytest.raises(StoreUnavailable):
        await store.content(Recipient(envelope=envelope, size=1, qid=1, address="a@example.org"))
