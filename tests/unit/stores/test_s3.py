"""The object store against moto's server: its objects, how nodes share it, and what it finds left over."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from aiobotocore.session import get_session  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Origin, Settlement
from mqcd.stores.backend import Change, Stored, Write
from mqcd.stores.s3 import S3Store
from mqcd.stores.s3_objects import Objects
from tests.contract.harness import HOUR
from tests.contract.mail import BODY, chunks, deferred, delivered, read_all
from tests.fakes import s3_server
from tests.unit.stores.node import StoreNode, check_begins_again

pytestmark = pytest.mark.slow
LONG = bytes(range(256)) * (9 << 12)


@pytest.fixture
def prefix() -> str:
    return f"{uuid.uuid4().hex}/"


@asynccontextmanager
async def client() -> AsyncIterator[Any]:
    url = s3_server.shared_server().url
    async with s3_server.shared_session().create_client(
        "s3", endpoint_url=url, region_name="us-east-1"
    ) as made:
        yield made


async def names(prefix: str) -> set[str]:
    async with client() as s3:
        found = await s3.list_objects_v2(Bucket=s3_server.BUCKET, Prefix=prefix)
    return {each["Key"].removeprefix(prefix) for each in found.get("Contents", ())}


class Node(StoreNode[S3Store]):
    """One server on the store."""

    def __init__(
        self,
        prefix: str,
        objects: Callable[[str, str], Objects] = Objects,
        lease_ms: int = 60_000,
        queue_url: str = "",
    ) -> None:
        url = s3_server.shared_server().url
        self.objects = objects(s3_server.BUCKET, prefix)
        self.objects.make_session = s3_server.shared_session
        super().__init__(
            S3Store(s3_server.BUCKET, prefix, url, "us-east-1", "", lease_ms, queue_url, objects=self.objects)
        )


async def test_objects_are_what_the_documentation_says(prefix: str) -> None:
    node = Node(prefix)
    post = await node.start()
    [recipient] = await post.send("a@example.org")
    name = f"{recipient.spid:016X}"
    assert await names(prefix) == {f"message/{name}", f"content/{name}", "node/000", "marks/000"}
    async with client() as s3:
        found = await s3.get_object(Bucket=s3_server.BUCKET, Key=f"{prefix}content/{name}")
        assert await found["Body"].read() == BODY
    await post.settle(delivered(), *await post.claim_all())
    await node.queue.close()
    assert await names(prefix) == {"marks/000"}


class Deaf(Objects):
    """Misses the answer to the first PUT of a message that is there."""

    missed = 0

    async def put(self, kind: str, name: str, body: bytes, **condition: str) -> str | None:
        answer = await super().put(kind, name, body, **condition)
        if kind == "message" and "IfMatch" in condition and not self.missed:
            self.missed = 1
            raise StoreUnavailable("no answer")
        return answer


async def test_messages_whose_take_had_no_answer_are_taken(prefix: str) -> None:
    first, second = Node(prefix), Node(prefix, Deaf)
    post = await first.start()
    own = await (await second.start()).send("o@example.org")
    sent = [*await post.send("a@example.org"), *await post.send("b@example.org")]
    await first.queue.close()
    await second.until(lambda: len(second.queue._live.documents.messages) == 3)
    assert isinstance(second.objects, Deaf)
    assert second.objects.missed
    assert set(await second.post.scan()) == {each.key for each in [*own, *sent]}
    await second.queue.close()


async def test_a_node_that_is_gone_loses_its_mail_to_another(prefix: str) -> None:
    first, second = Node(prefix), Node(prefix)
    post = await first.start()
    await second.start()
    assert (first.store.node, second.store.node) == (0, 1)
    sent = await post.send("a@example.org", "b@example.org")
    [begun] = await first.queue.claim(1, first.clock.now())
    await first.queue.begin([begun], "mx.example.org")
    await s3_server.end_leases(prefix)
    # The second one finds its own lease gone, and begins again as another node.
    await second.clock.run_for(60_000)
    await second.until(lambda: second.observer.count(Verb.OUTCOME_UNKNOWN) > 0)
    assert set(await second.post.scan()) == {each.key for each in sent}
    await first.post.settle(delivered(), begun)
    assert first.observer.count(Verb.DELIVERED) == 0
    assert await first.post.scan() == {}
    for node in (first, second):
        await node.queue.close()


async def test_an_object_that_is_no_message_ends_no_node(prefix: str) -> None:
    node, *others = (Node(prefix) for _ in range(3))
    for each in (node, *others):
        await each.start()
    await node.until(lambda: len(node.store._lived) == 3)
    async with client() as s3:
        await s3.put_object(Bucket=s3_server.BUCKET, Key=f"{prefix}message/{7:016X}", Body=b"nonsense")
    for other in others:
        [sent] = await other.post.send("a@example.org")
        await other.queue.close()
        await node.until(partial(node.queue._live.documents.messages.__contains__, sent.spid))
    await node.queue.close()


class Paged(Objects):
    """Its lists come in parts of two, and it counts them."""

    def __init__(self, bucket: str, prefix: str) -> None:
        super().__init__(bucket, prefix)
        self.lists: Counter[str] = Counter()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Any]:
        async with super().asking() as made:
            yield ListingClient(made, self.lists)


class ListingClient:
    def __init__(self, client: Any, lists: Counter[str]) -> None:
        self._client, self._lists = client, lists

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list_objects_v2(self, **asked: Any) -> Any:
        self._lists[asked["Prefix"].split("/")[-2]] += 1
        return await self._client.list_objects_v2(**asked, MaxKeys=2)


async def test_a_take_gives_back_after_some_messages_of_living_nodes(prefix: str) -> None:
    living, killed = Node(prefix), Node(prefix)
    sent: set[int] = set()
    for node in (living, killed):
        post = await node.start()
        sent = {each.spid for _ in range(5) for each in await post.send("a@example.org")}
    async with client() as s3:
        await s3.delete_object(Bucket=s3_server.BUCKET, Key=f"{prefix}node/001")
    objects = Paged(s3_server.BUCKET, prefix)
    objects.make_session = s3_server.shared_session
    store = S3Store(s3_server.BUCKET, prefix, s3_server.shared_server().url, "us-east-1", objects=objects)
    await store.open()
    answers: list[Sequence[Stored] | None] = []
    while answers[-1:] != [[]]:
        objects.lists.clear()
        answers.append(await store.take(2))
        assert objects.lists["message"] <= 1
        assert objects.lists["node"] <= 3, "each node is looked up once"
    assert None in answers
    assert {each.spid for some in answers for each in some or ()} == sent
    await store.close()
    for node in (living, killed):
        await node.queue.close()


class Markless(Objects):
    """Its marks cannot be read once."""

    fail = False

    async def get(self, kind: str, name: str) -> tuple[bytes, str] | None:
        if kind == "marks" and self.fail:
            self.fail = False
            raise StoreUnavailable("503 SlowDown")
        return await super().get(kind, name)


async def test_a_begin_that_fails_is_no_kept_lease(prefix: str) -> None:
    node = Node(prefix, Markless)
    assert isinstance(node.objects, Markless)
    sent = await (await node.start()).send("a@example.org")
    await s3_server.end_leases(prefix)
    node.objects.fail = True
    await check_begins_again(node, sent)
    assert not node.objects.fail


async def test_a_begin_that_fails_leaves_no_number_taken(prefix: str) -> None:
    node = Node(prefix, Markless)
    assert isinstance(node.objects, Markless)
    node.objects.fail = True
    with pytest.raises(StoreUnavailable):
        await node.queue.open()
    assert await names(prefix) == set()
    await node.start()
    assert node.store.node == 0
    await node.queue.close()


class Lossy(Objects):
    """The answer to a change of a message is lost once."""

    lose = False

    async def put(self, kind: str, name: str, body: bytes, **condition: str) -> str | None:
        done = await super().put(kind, name, body, **condition)
        if kind == "message" and self.lose:
            self.lose = False
            raise StoreUnavailable("the answer is lost")
        return done

    async def delete(self, kind: str, name: str, **condition: str) -> bool:
        done = await super().delete(kind, name, **condition)
        if kind == "message" and self.lose:
            self.lose = False
            raise StoreUnavailable("the answer is lost")
        return done


async def test_a_lost_answer_does_not_lose_the_message(prefix: str) -> None:
    node = Node(prefix, Lossy)
    assert isinstance(node.objects, Lossy)
    post = await node.start()
    submission = post.submission("a@example.org")
    node.objects.lose = True
    with pytest.raises(StoreUnavailable):
        await node.queue.enqueue(submission)
    await node.queue.enqueue(submission)
    claimed = await post.claim_all()
    node.objects.lose = True
    with pytest.raises(StoreUnavailable):
        await node.queue.begin(claimed, "mx.example.org")
    await node.queue.begin(claimed, "mx.example.org")
    node.objects.lose = True
    with pytest.raises(StoreUnavailable):
        await post.settle(delivered(), *claimed)
    await post.settle(delivered(), *claimed)
    assert node.observer.count(Verb.DELIVERED) == 1
    await node.queue.close()
    assert await names(prefix) == {"marks/000"}


class Meeting(Objects):
    """A new message meets another request of its name, as Amazon says: nothing is written."""

    meets = 0

    async def put(self, kind: str, name: str, body: bytes, **condition: str) -> str | None:
        if kind == "message" and "IfNoneMatch" in condition and self.meets:
            self.meets -= 1
            return None
        return await super().put(kind, name, body, **condition)


async def test_no_bounce_ends_whose_report_is_not_written(prefix: str) -> None:
    node = Node(prefix, Meeting)
    assert isinstance(node.objects, Meeting)
    post = await node.start()
    await post.send("a@example.org")
    claimed = await post.claim_all()
    settlements = [Settlement(recipient=each, verdict=delivered()) for each in claimed]
    refused, report = (
        post.submission("sender@example.com", sender="", origin=Origin.REPORT) for _ in range(2)
    )
    node.objects.meets = 2
    with pytest.raises(StoreUnavailable):
        await node.queue.settle(settlements, [refused])
    await node.queue.settle(settlements, [report])
    assert {spid for spid, _ in await post.scan()} == {report.envelope.spid}
    assert node.observer.count(Verb.DELIVERED) == 1
    await node.queue.close()


async def test_a_message_that_met_another_request_is_tried_again(prefix: str) -> None:
    node = Node(prefix, Meeting)
    assert isinstance(node.objects, Meeting)
    post = await node.start()
    node.objects.meets = 1
    sent = await post.send("a@example.org")
    assert set(await post.scan()) == {each.key for each in sent}
    await node.queue.close()


async def test_nothing_is_written_once_the_session_has_begun_again(prefix: str) -> None:
    node = Node(prefix, Meeting)
    objects = node.objects
    assert isinstance(objects, Meeting)
    await node.store.open()
    await s3_server.end_leases(prefix)
    get = objects.get

    async def begin_again(kind: str, name: str) -> tuple[bytes, str] | None:
        if kind == "message":
            assert await node.store.renew() is not None
        return await get(kind, name)

    objects.meets, objects.get = 1, begin_again  # type: ignore[method-assign]
    change = Change(spid=8, puts={1: b"-\n"}, due=0, values=lambda: {1: b"-\n"}, is_new=True, content=b"x")
    assert list(await node.store.write(Write(changes=[change]))) == [change.spid]
    assert f"message/{8:016X}" not in await names(prefix)
    await node.store.close()


class Uneven(Objects):
    """The first change of one message is refused, that of another waits until it is let go."""

    refuses, waits = "", ""

    def __init__(self, bucket: str, prefix: str) -> None:
        super().__init__(bucket, prefix)
        self.refused_one, self.let = asyncio.Event(), asyncio.Event()

    async def put(self, kind: str, name: str, body: bytes, **condition: str) -> str | None:
        if kind == "message" and name == self.refuses:
            self.refuses = ""
            self.refused_one.set()
            raise StoreUnavailable("503 SlowDown")
        if kind == "message" and name == self.waits:
            self.waits = ""
            await self.let.wait()
        return await super().put(kind, name, body, **condition)


async def test_a_write_that_fails_ends_with_its_last_request(prefix: str) -> None:
    node = Node(prefix, Uneven)
    objects = node.objects
    assert isinstance(objects, Uneven)
    post = await node.start()
    await post.send("a@example.org")
    await post.send("b@example.org")
    claimed = await post.claim_all()
    objects.refuses, objects.waits = (f"{each.spid:016X}" for each in claimed)
    settling = asyncio.ensure_future(post.settle(deferred(post.clock.now() + HOUR), *claimed))
    await objects.refused_one.wait()
    done, _ = await asyncio.wait([settling], timeout=0.1)
    objects.let.set()
    with pytest.raises(StoreUnavailable):
        await settling
    assert not done, "a request that is still under way could replace what a later write says"
    await node.queue.close()


class CarelessClient:
    """Of a server that overlooks some conditions of requests, and has not implemented others."""

    def __init__(self, client: Any, overlooked: Collection[str], refused: Collection[str]) -> None:
        self._client, self._overlooked, self._refused = client, overlooked, refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def put_object(self, **asked: Any) -> Any:
        return await self._ask("put_object", asked)

    async def delete_object(self, **asked: Any) -> Any:
        return await self._ask("delete_object", asked)

    async def _ask(self, name: str, asked: dict[str, Any]) -> Any:
        if any(f"{name} {each}" in self._refused for each in asked):
            raise ClientError({"Error": {"Code": "NotImplemented"}}, name)
        heeded = {each: value for each, value in asked.items() if f"{name} {each}" not in self._overlooked}
        return await getattr(self._client, name)(**heeded)


class Careless(Objects):
    """Its server does not know all conditions."""

    def __init__(self, how: str, conditions: Collection[str], bucket: str, prefix: str) -> None:
        super().__init__(bucket, prefix)
        self._overlooked = conditions if how == "overlooked" else ()
        self._refused = conditions if how == "refused" else ()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Any]:
        async with super().asking() as made:
            yield CarelessClient(made, self._overlooked, self._refused)


CONDITIONS = ("put_object IfNoneMatch", "put_object IfMatch", "delete_object IfMatch")


@pytest.mark.parametrize("how", ["overlooked", "refused"])
@pytest.mark.parametrize("unknown", CONDITIONS)
async def test_a_store_that_lacks_a_condition_is_not_shared(prefix: str, unknown: str, how: str) -> None:
    node = Node(prefix, partial(Careless, how, (unknown,)))
    await node.start()
    assert (node.store.promises.shared, node.store.lease_ms) == (False, 0)
    await node.queue.close()
    assert await names(prefix) == set()


@pytest.mark.parametrize("how", ["overlooked", "refused"])
async def test_a_store_without_conditions_keeps_mail(prefix: str, how: str) -> None:
    without = partial(Careless, how, CONDITIONS)
    killed = Node(prefix, without)
    post = await killed.start()
    kept = [*await post.send("a@example.org"), *await post.send("b@example.org", "c@example.org")]
    [done, *left] = kept
    await post.settle(delivered(), *[each for each in await post.claim_all() if each.key == done.key])
    again = Node(prefix, without)
    post = await again.start()
    assert set(await post.scan()) == {each.key for each in left}
    await post.settle(delivered(), *await post.claim_all())
    for node in (again, killed):
        await node.queue.close()
    assert await names(prefix) == {"marks/000"}


class Tomorrow(Objects):
    """Its server's clock is a day ahead when it lists."""

    async def list(self, kind: str) -> tuple[list[dict[str, Any]], float]:
        found, at = await super().list(kind)
        return found, at + (timedelta(days=2).total_seconds() if kind == "content" else 0)


async def test_contents_without_a_message_are_removed_a_day_later(prefix: str) -> None:
    async with client() as s3:
        await s3.put_object(Bucket=s3_server.BUCKET, Key=f"{prefix}content/{7:016X}", Body=b"half")
    node = Node(prefix)
    await node.start()
    await node.queue.close()
    assert await names(prefix) == {f"content/{7:016X}"}
    node = Node(prefix, Tomorrow)
    await node.start()
    await node.queue.close()
    assert await names(prefix) == set()


async def cut_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request with less than was announced, and hang up."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n000-")
    writer.close()
    await writer.wait_closed()


async def test_an_answer_that_is_cut_off_is_a_failure_of_the_store(prefix: str) -> None:
    server = await asyncio.start_server(cut_off, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
    objects = Objects(s3_server.BUCKET, prefix)
    store = S3Store(s3_server.BUCKET, prefix, objects=objects)
    async with (
        server,
        get_session().create_client("s3", endpoint_url=url, region_name="us-east-1", **keys) as made,
    ):
        objects.client = made
        with pytest.raises(StoreUnavailable, match="payload"):
            await objects.get("message", "1")
        content = await store.content(1)
        assert content.size == 3_000_000
        with pytest.raises(ContentUnavailable):
            await read_all(content)
        content.close()


async def test_requests_have_no_checksums_that_only_amazon_knows(prefix: str) -> None:
    node = Node(prefix)
    post = await node.start()
    sent: list[Mapping[str, Any]] = []
    for name in ("PutObject", "UploadPart"):
        node.objects.client.meta.events.register(
            f"before-send.s3.{name}", lambda request, **_: sent.append(request.headers)
        )
    await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG, 1 << 20)))
    assert len(sent) > 2
    assert not [name for headers in sent for name in headers if "checksum" in name.lower()]
    assert all(len(headers["X-Amz-Content-SHA256"]) == 64 for headers in sent)
    await node.queue.close()


async def test_long_content_goes_in_parts(prefix: str) -> None:
    node = Node(prefix)
    post = await node.start()
    await node.queue.enqueue(post.submission("a@example.org", content=chunks(LONG, 1 << 20)))
    [claimed] = await post.claim_all()
    assert await read_all(await node.queue.content(claimed), 1 << 16) == LONG
    async with client() as s3:
        await s3.delete_object(Bucket=s3_server.BUCKET, Key=f"{prefix}content/{claimed.spid:016X}")
    with pytest.raises(ContentUnavailable):
        await node.queue.content(claimed)
    await post.settle(delivered(), claimed)
    await node.queue.close()


async def test_streams_leave_connections_for_other_requests(prefix: str) -> None:
    node = Node(prefix)
    post = await node.start()
    for number in range(18):
        await node.queue.enqueue(post.submission(f"{number}@example.org", content=LONG[: 1025 << 10]))
    claimed = await post.claim_all()
    async with asyncio.timeout(60):
        opened = [await node.queue.content(each) for each in claimed]
        for each in claimed:
            await node.queue.begin([each], "mx.example.org")
    for content in opened:
        content.close()
    await node.queue.close()
