"""The PostgreSQL store against a real server: what it keeps through kills, and how nodes share it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from mqcd.core.errors import ConfigError, ContentUnavailable, StoreDamaged, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.stores.postgres import CHUNK, PostgresStore
from tests.contract.mail import BODY, chunks, delivered, read_all
from tests.fakes.postgres_server import PostgresServer, end_leases, shared_server
from tests.unit.stores.kills import check, killed
from tests.unit.stores.node import StoreNode, check_begins_again, fail_to_report

pytestmark = pytest.mark.slow
LONG = bytes(range(256)) * 8000


@pytest.fixture
def schema() -> str:
    return f"s{uuid.uuid4().hex}"


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """One that may be killed."""
    server = PostgresServer()
    yield server
    server.stop()


class Deaf(PostgresStore):
    """Misses the answer to the commit of the first take that took something."""

    missed = 0

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with super()._transaction() as connection:
            before = await connection.fetchval(
                "SELECT count(*) FROM messages WHERE owner = $1", self._session
            )
            yield connection
            count = await connection.fetchval("SELECT count(*) FROM messages WHERE owner = $1", self._session)
        if count > before + 1 and not self.missed:
            self.missed = count - before
            raise StoreUnavailable("no answer")


class DeafToBegin(PostgresStore):
    """Misses the answer to the commit of the first session but one."""

    missed = 0

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with super()._transaction() as connection:
            yield connection
            count = await connection.fetchval("SELECT count(*) FROM nodes") if self._session else 0
        if count > 1 and not self.missed:
            self.missed = count
            raise StoreUnavailable("no answer")


class Node(StoreNode[PostgresStore]):
    """One server on the store."""

    def __init__(self, url: str, schema: str = "mqcd", store: type[PostgresStore] = PostgresStore) -> None:
        super().__init__(store(url, schema))


async def rows(url: str, query: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def test_messages_whose_take_had_no_answer_are_taken(schema: str) -> None:
    url = shared_server().url
    first = Node(url, schema)
    post = await first.start()
    second = Node(url, schema, Deaf)
    own = await (await second.start()).send("o@example.org")
    sent = [*await post.send("a@example.org"), *await post.send("b@example.org")]
    await first.queue.close()
    await second.until(lambda: len(second.queue._live.documents.messages) == 3)
    assert isinstance(second.store, Deaf)
    assert second.store.missed == 2
    assert set(await second.post.scan()) == {each.key for each in [*own, *sent]}
    await second.queue.close()


async def test_tables_are_empty_when_the_queue_is(schema: str) -> None:
    url = shared_server().url
    node = Node(url, schema)
    post = await node.start()
    [recipient] = await post.send("a@example.org")
    assert await rows(url, f"SELECT chunk, expires FROM {schema}.contents") == [(BODY, None)]
    assert await rows(url, f"SELECT spid FROM {schema}.messages") == [(recipient.spid,)]
    await post.settle(delivered(), *await post.claim_all())
    for table in ("messages", "recipients", "contents"):
        assert await rows(url, f"SELECT * FROM {schema}.{table}") == []
    await node.queue.close()


async def test_a_node_that_is_gone_loses_its_mail_to_another(schema: str) -> None:
    url = shared_server().url
    first, second = Node(url, schema), Node(url, schema)
    post = await first.start()
    await second.start()
    assert (first.store.node, second.store.node) == (0, 1)
    sent = await post.send("a@example.org", "b@example.org")
    [begun] = await first.queue.claim(1, first.clock.now())
    await first.queue.begin([begun], "mx.example.org")
    await end_leases(url, schema)
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


async def test_a_begin_whose_answer_is_lost_is_no_kept_lease(schema: str) -> None:
    node = Node(shared_server().url, schema, DeafToBegin)
    sent = await (await node.start()).send("a@example.org")
    await end_leases(shared_server().url, schema)
    await check_begins_again(node, sent)
    assert isinstance(node.store, DeafToBegin)
    assert node.store.missed


async def test_nothing_ends_without_the_report_on_it(schema: str) -> None:
    url = shared_server().url
    first, second = Node(url, schema), Node(url, schema)
    post = await first.start()
    await post.send("a@example.org")
    await end_leases(url, schema)
    kept = await fail_to_report(first)
    await second.start()
    assert set(await second.post.scan()) == kept
    await second.queue.close()


async def test_a_server_that_is_killed_refuses_and_comes_back(own_server: PostgresServer) -> None:
    node = Node(own_server.url)
    post = await node.start()
    [kept] = await post.send("a@example.org")
    own_server.kill()
    with pytest.raises(StoreUnavailable, match="postgres"):
        await post.send("b@example.org")
    claimed = await post.claim_all()
    with pytest.raises(StoreUnavailable):
        await post.settle(delivered(), *claimed)
    own_server.start()
    assert await post.read(kept) == BODY
    await post.settle(delivered(), *claimed)
    assert await post.scan() == {}
    await node.queue.close()


async def test_a_role_that_does_not_sync_is_no_promise(schema: str) -> None:
    node = Node(f"{shared_server().url}&options=-csynchronous_commit%3Doff", schema)
    await node.start()
    assert not node.store.promises.synced
    await node.queue.close()


async def test_another_layout_is_refused(schema: str) -> None:
    url = shared_server().url
    node = Node(url, schema)
    await node.start()
    await node.queue.close()
    await rows(url, f"UPDATE {schema}.layout SET version = 9")
    with pytest.raises(StoreDamaged, match="layout 9"):
        await PostgresStore(url, schema).open()


@pytest.mark.parametrize("name", ["", "a;b", "a b", "ü"])
def test_a_schema_is_a_plain_name(name: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        PostgresStore("postgresql:///", name)


@pytest.mark.parametrize("url", ["", "redis://127.0.0.1/0", "host/database", "postgresql://u:secret@h:p/db"])
async def test_an_url_that_is_none_says_what_is_expected(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://role@host") as raised:
        await PostgresStore(url).open()
    assert "secret" not in str(raised.value)


async def test_long_content_stays_for_its_readers(schema: str) -> None:
    url = shared_server().url
    node = Node(url, schema)
    post = await node.start()
    await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG)))
    [claimed] = await post.claim_all()
    content = await node.queue.content(claimed)
    head = await content.read(CHUNK + 5)
    await post.settle(delivered(), claimed)
    assert head + await read_all(content) == LONG
    await rows(url, f"UPDATE {schema}.contents SET expires = '-infinity'")
    await node.store.renew()
    assert await rows(url, f"SELECT number FROM {schema}.contents") == []
    await node.queue.close()


async def test_content_that_is_gone_is_unavailable(schema: str) -> None:
    url = shared_server().url
    node = Node(url, schema)
    post = await node.start()
    [recipient] = await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG)))
    content = await node.queue.content(recipient)
    await rows(url, f"DELETE FROM {schema}.contents")
    with pytest.raises(ContentUnavailable):
        await read_all(content)
    with pytest.raises(ContentUnavailable):
        await node.queue.content(recipient)
    await node.queue.close()


async def test_a_kill_of_the_node_loses_nothing(own_server: PostgresServer) -> None:
    said = killed("postgres", own_server.url)
    await end_leases(own_server.url, "mqcd")
    await check(said, PostgresStore(own_server.url))


async def test_a_kill_of_the_server_loses_nothing(own_server: PostgresServer) -> None:
    said = killed("postgres", own_server.url, own_server.kill)
    own_server.start()
    await end_leases(own_server.url, "mqcd")
    await check(said, PostgresStore(own_server.url))
