"""Idempotency keys: a message that comes again under its key is accepted once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mqcd.core.errors import ConnectFailed
from mqcd.core.model import Key
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.idempotency import key_of, read_on
from mqcd.core.smtp.reply import Refused
from tests.contract.harness import HOUR, Harness, Restart
from tests.contract.mail import BODY, Post, delivered

SENDER, TO = "sender@example.com", "a@example.org"


def key(text: str = "k1", content: bytes = BODY, owner: str = "user:alice") -> Key:
    return key_of(owner, text, SENDER, [TO], content)


class Streamed:
    """A message that comes in parts, and goes on when it is let."""

    def __init__(self, octets: bytes) -> None:
        self.key = key(content=b"")
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.fails = False
        self._octets = octets

    async def chunks(self) -> AsyncIterator[bytes]:
        self.asked.set()
        await self.go_on.wait()
        if self.fails:
            raise ConnectFailed("gone")
        read_on(self.key, self._octets)
        yield self._octets


async def send(post: Post, key: Key, content: bytes = BODY) -> int:
    return (await post.store.enqueue(post.submission(TO, content=content, key=key)))[0].spid


async def test_the_same_key_gives_the_first_message(post: Post) -> None:
    first = await send(post, key())
    assert await send(post, key()) == first
    assert set(await post.scan()) == {(first, 1)}


async def test_keys_of_other_owners_are_other_keys(post: Post) -> None:
    spids = {await send(post, key(owner=owner)) for owner in ("user:alice", "user:bob")}
    assert {spid for spid, _ in await post.scan()} == spids
    assert len(spids) == 2


async def test_a_message_without_a_key_is_never_a_repeat(post: Post) -> None:
    await send(post, key())
    await post.send(TO)
    assert len(await post.scan()) == 2


async def test_a_key_with_another_content_is_refused(post: Post) -> None:
    first = await send(post, key())
    with pytest.raises(Refused) as refused:
        await send(post, key(content=b"other\r\n"), b"other\r\n")
    assert refused.value.reply.code == 554
    assert set(await post.scan()) == {(first, 1)}


async def test_a_key_outlives_its_message(post: Post) -> None:
    first = await send(post, key())
    await post.settle(delivered(), *await post.claim_all())
    assert await post.scan() == {}
    assert await send(post, key()) == first
    assert await post.scan() == {}


async def test_of_uses_at_once_one_is_accepted(post: Post) -> None:
    spids = await asyncio.gather(*(send(post, key()) for _ in range(20)))
    assert len(set(spids)) == 1
    assert set(await post.scan()) == {(spids[0], 1)}


async def test_a_second_use_waits_for_the_first(store: QueueStore, post: Post) -> None:
    streamed = Streamed(BODY)
    submission = post.submission(TO, content=streamed.chunks(), key=streamed.key)
    first = asyncio.ensure_future(store.enqueue(submission))
    await streamed.asked.wait()
    second = asyncio.ensure_future(send(post, key()))
    await asyncio.sleep(0)
    assert not second.done()
    streamed.go_on.set()
    assert await second == (await first)[0].spid
    assert len(await post.scan()) == 1


async def test_a_second_use_goes_on_when_the_first_fails(store: QueueStore, post: Post) -> None:
    streamed = Streamed(BODY)
    streamed.fails = True
    submission = post.submission(TO, content=streamed.chunks(), key=streamed.key)
    first = asyncio.ensure_future(store.enqueue(submission))
    await streamed.asked.wait()
    second = asyncio.ensure_future(send(post, key()))
    streamed.go_on.set()
    with pytest.raises(ConnectFailed):
        await first
    spid = await second
    assert set(await post.scan()) == {(spid, 1)}


async def test_a_repeat_may_come_in_parts(store: QueueStore, post: Post) -> None:
    first = await send(post, key())
    streamed = Streamed(BODY)
    streamed.go_on.set()
    submission = post.submission(TO, content=streamed.chunks(), key=streamed.key)
    [recipient] = await store.enqueue(submission)
    assert (recipient.spid, recipient.size, recipient.address) == (first, len(BODY), TO)


async def test_a_cancelled_use_leaves_no_turn_behind(store: QueueStore, post: Post) -> None:
    streamed = Streamed(BODY)
    submission = post.submission(TO, content=streamed.chunks(), key=streamed.key)
    first = asyncio.ensure_future(store.enqueue(submission))
    await streamed.asked.wait()
    first.cancel()
    await asyncio.wait([first])
    spid = await send(post, key())
    assert set(await post.scan()) == {(spid, 1)}


async def test_a_caller_that_leaves_has_used_its_key(post: Post) -> None:
    # Whether its message was accepted before it left or not, there is one in the end.
    first = asyncio.ensure_future(send(post, key()))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    spid = await send(post, key())
    assert set(await post.scan()) == {(spid, 1)}


async def test_a_key_is_forgotten_after_its_time(post: Post) -> None:
    first = await send(post, key())
    post.clock.advance(23 * HOUR)
    assert await send(post, key()) == first
    post.clock.advance(2 * HOUR)
    second = await send(post, key())
    assert second != first
    assert await send(post, key()) == second


async def test_keys_outlive_a_restart(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    ended = await send(post, key("ended"))
    await post.settle(delivered(), *await post.claim_all())
    waiting = await send(post, key("waiting"))
    post = Post(await harness.restart(how), harness.clock)
    assert [await send(post, key(text)) for text in ("ended", "waiting")] == [ended, waiting]
    assert set(await post.scan()) == {(waiting, 1)}


async def test_keys_are_forgotten_over_restarts(restarting: tuple[Harness, Restart]) -> None:
    harness, how = restarting
    post = Post(await harness.start(), harness.clock)
    first = await send(post, key("old"))
    harness.clock.advance(20 * HOUR)
    younger = await send(post, key("young"))
    post = Post(await harness.restart(how), harness.clock)
    harness.clock.advance(5 * HOUR)
    post = Post(await harness.restart(how), harness.clock)
    assert await send(post, key("young")) == younger
    assert await send(post, key("old")) != first
