"""The Redis store against a real server: what it keeps through kills, and how nodes share it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import ConfigError, ContentUnavailable, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.stores.queue.taking import POLL_MS
from mqcd.stores.redis import CHUNK, RedisStore
from mqcd.stores.redis_scripts import TAKE
from tests.contract.mail import BODY, chunks, delivered, read_all
from tests.fakes.redis_server import RedisServer
from tests.unit.stores.kills import check, killed
from tests.unit.stores.node import StoreNode, fail_to_report

pytestmark = pytest.mark.slow
LONG = bytes(range(256)) * 8000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    running = RedisServer(tmp_path / "redis")
    yield running
    running.stop()


class Deaf(RedisStore):
    """Misses the answer to the first take that gave something."""

    missed = 0

    async def _script(self, script: str, *arguments: Any) -> Any:
        answer = await super()._script(script, *arguments)
        if script is TAKE and answer and not self.missed:
            self.missed = len(answer)
            raise StoreUnavailable("no answer")
        return answer


class Node(StoreNode[RedisStore]):
    """One server on the store."""

    def __init__(self, server: RedisServer, store: type[RedisStore] = RedisStore) -> None:
        super().__init__(store(server.url))


def expire(server: RedisServer) -> None:
    """The leases of all nodes have run out."""
    with server.client() as client:
        for session, entry in client.hgetall("mqcd:nodes").items():
            client.hset("mqcd:nodes", session, entry.split()[0] + b" 0")


async def test_keys_are_what_the_documentation_says(server: RedisServer) -> None:
    node = Node(server)
    post = await node.start()
    [recipient] = await post.send("a@example.org")
    name = f"{recipient.spid:016X}"
    with server.client() as client:
        message = client.hgetall(f"mqcd:message:{name}")
        assert set(message) == {b"r:1", b"owner", b"timestamp"}
        assert client.lrange(f"mqcd:content:{name}", 0, -1) == [BODY]
        assert client.ttl(f"mqcd:content:{name}") == -1
        await post.settle(delivered(), *await post.claim_all())
        assert {key.decode().split(":")[1] for key in client.scan_iter()} == {"marks", "nodes", "sessions"}
    await node.queue.close()


async def test_a_node_that_is_gone_loses_its_mail_to_another(server: RedisServer) -> None:
    first, second = Node(server), Node(server)
    post = await first.start()
    await second.start()
    assert (first.store.node, second.store.node) == (0, 1)
    sent = await post.send("a@example.org", "b@example.org")
    [begun] = await first.queue.claim(1, first.clock.now())
    await first.queue.begin([begun], "mx.example.org")
    await second.clock.run_for(3 * POLL_MS)
    assert await second.post.scan() == {}
    expire(server)
    # The second one finds its own lease gone, and begins again as another node.
    await second.clock.run_for(60_000)
    await second.until(lambda: second.observer.count(Verb.OUTCOME_UNKNOWN) > 0)
    assert set(await second.post.scan()) == {each.key for each in sent}
    await first.post.settle(delivered(), begun)
    assert first.observer.count(Verb.DELIVERED) == 0
    with pytest.raises(StoreUnavailable):
        await first.post.send("c@example.org")
    for node in (first, second):
        await node.queue.close()


async def test_nothing_ends_without_the_report_on_it(server: RedisServer) -> None:
    first, second = Node(server), Node(server)
    post = await first.start()
    await post.send("a@example.org")
    expire(server)
    kept = await fail_to_report(first)
    await second.start()
    assert set(await second.post.scan()) == kept
    await second.queue.close()


async def test_messages_whose_take_had_no_answer_are_taken(server: RedisServer) -> None:
    first, second = Node(server), Node(server, Deaf)
    post = await first.start()
    own = await (await second.start()).send("o@example.org")
    sent = [*await post.send("a@example.org"), *await post.send("b@example.org")]
    await first.queue.close()
    await second.until(lambda: len(second.queue._live.documents.messages) == 3)
    assert isinstance(second.store, Deaf)
    assert second.store.missed == 2
    assert set(await second.post.scan()) == {each.key for each in [*own, *sent]}
    await second.queue.close()


async def test_a_server_that_is_gone_refuses_and_comes_back(server: RedisServer) -> None:
    node = Node(server)
    post = await node.start()
    await post.send("a@example.org")
    server.kill()
    with pytest.raises(StoreUnavailable, match="redis"):
        await post.send("b@example.org")
    claimed = await post.claim_all()
    with pytest.raises(StoreUnavailable):
        await post.settle(delivered(), *claimed)
    server.start()
    await post.settle(delivered(), *claimed)
    assert await post.scan() == {}
    await node.queue.close()


async def test_an_unsynced_server_is_no_promise(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", "--appendonly", "no")
    node = Node(server)
    await node.start()
    assert not node.store.promises.synced
    await node.queue.close()
    server.stop()


async def test_no_password_in_errors(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always")
    with server.client() as client:
        client.config_set("requirepass", "hunter2secret")
    secret = tmp_path / "secret"
    secret.write_text("wrong-hunter3\n")
    with pytest.raises(StoreUnavailable) as raised:
        await RedisStore(server.url, password_file=secret).open()
    assert "hunter" not in str(raised.value)
    secret.write_text("hunter2secret\n")
    store = RedisStore(server.url, password_file=secret)
    await store.open()
    await store.close()
    server.stop()


@pytest.mark.parametrize("url", ["", "postgresql:///", "127.0.0.1:6379", "redis://:sec/ret@127.0.0.1:6379/0"])
def test_an_url_that_is_none_says_what_is_expected(url: str) -> None:
    with pytest.raises(ConfigError, match="redis://host") as raised:
        RedisStore(url)
    assert "sec" not in str(raised.value)


async def test_staged_content_expires_from_its_first_chunk_on(server: RedisServer) -> None:
    store = RedisStore(server.url)
    await store.open()
    with server.client() as client:

        async def checked() -> AsyncIterator[bytes]:
            yield bytes(CHUNK)
            yield bytes(CHUNK)
            assert client.ttl(f"mqcd:content:{1:016X}") > 0

        assert await store.stage(1, checked()) == 2 * CHUNK
    await store.close()


def test_content_of_a_write_that_is_cut_off_expires(server: RedisServer) -> None:
    commands = list(RedisStore(server.url)._pushes(1, bytes(3 * CHUNK)))
    for count in range(1, len(commands) + 1):
        with server.client() as client, client.pipeline(transaction=False) as pipeline:
            for words in commands[:count]:
                pipeline.execute_command(*words)
            pipeline.execute()
        with server.client() as client:
            assert all(client.ttl(key) > 0 for key in client.keys("mqcd:content:*"))
            client.flushall()


async def test_long_content_stays_for_its_readers(server: RedisServer) -> None:
    node = Node(server)
    post = await node.start()
    await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG)))
    [claimed] = await post.claim_all()
    content = await node.queue.content(claimed)
    head = await content.read(CHUNK + 5)
    await post.settle(delivered(), claimed)
    assert head + await read_all(content) == LONG
    with server.client() as client:
        [key] = client.keys("mqcd:content:*")
        assert 0 < client.ttl(key) <= 600
        client.delete(key)
    await node.queue.close()


async def test_content_that_is_gone_is_unavailable(server: RedisServer) -> None:
    node = Node(server)
    post = await node.start()
    [recipient] = await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG)))
    content = await node.queue.content(recipient)
    with server.client() as client:
        client.delete(*client.keys("mqcd:content:*"))
    with pytest.raises(ContentUnavailable):
        await read_all(content)
    with pytest.raises(ContentUnavailable):
        await node.queue.content(recipient)
    await node.queue.close()


async def test_a_kill_of_the_node_loses_nothing(server: RedisServer) -> None:
    said = killed("redis", server.url)
    expire(server)
    await check(said, RedisStore(server.url))


async def test_a_kill_of_the_server_loses_nothing(server: RedisServer) -> None:
    said = killed("redis", server.url, server.kill)
    server.start()
    expire(server)
    await check(said, RedisStore(server.url))
