"""Messages with keys over four shards: each key has one owner, whichever door its message comes to."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from mqcd.core.errors import ConnectFailed, StoreUnavailable
from mqcd.core.model import Body, Envelope, Key, Recipient, Submission
from mqcd.core.queueing.idempotency import key_of, name_of, read_on
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Refused
from mqcd.daemon.shards.owners import Owned, keys_path, owner_of
from mqcd.daemon.shards.owning import Owning
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.queue.store import ClusterStore
from tests.contract.harness import cluster_options
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.workers import LocalWorkers

SENDER, TO, BODY = "sender@example.com", "a@example.org", b"Subject: x\r\n\r\nbody\r\n"
SHARDS = 4


class Four:
    """Four queues, what each takes for the others, and what its doors give their mail to."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.paths = [keys_path(root / "control.sock", shard) for shard in range(SHARDS)]
        self.stores: list[ClusterStore] = []
        for shard in range(SHARDS):
            options = replace(cluster_options(root / f"shard{shard}"), source=Source("test", shard))
            disk = Disk()
            store = ClusterStore(options, self.clock, RecordingObserver(), disk, LocalWorkers(disk))
            self.stores.append(store)
        self.owning = [Owning(store, path) for store, path in zip(self.stores, self.paths, strict=True)]
        self.doors = [Owned(store, shard, self.paths) for shard, store in enumerate(self.stores)]

    async def open(self) -> None:
        for store in self.stores:
            await store.open()
        for each in self.owning:
            await each.listen("ops/control@path")

    async def close(self) -> None:
        for door in self.doors:
            door.close()
        for each in self.owning:
            await each.close()
        for store in self.stores:
            await store.close()

    async def restart(self, shard: int) -> None:
        """What the shard takes for others is gone, and back."""
        await self.owning[shard].close()
        self.owning[shard] = Owning(self.stores[shard], self.paths[shard])
        await self.owning[shard].listen("ops/control@path")

    def submission(self, door: int, key: Key, content: bytes | AsyncIterator[bytes] = BODY) -> Submission:
        spid = self.doors[door].reserve(several=False)
        envelope = Envelope(
            spid=spid, sender=SENDER, received=self.clock.now(), user="alice", body=Body.EIGHT
        )
        return Submission(envelope=envelope, recipients=(TO,), content=content, key=key)

    async def send(self, door: int, text: str, content: bytes = BODY) -> int:
        key = key_of("user:alice", text, SENDER, [TO], content)
        [recipient] = await self.doors[door].enqueue(self.submission(door, key, content))
        return recipient.spid

    async def queued(self) -> dict[int, list[Recipient]]:
        """By shard."""
        return {
            shard: [each async for each in store.scan(Selection())] for shard, store in enumerate(self.stores)
        }


@pytest.fixture
async def four(tmp_path: Path) -> AsyncIterator[Four]:
    made = Four(tmp_path)
    await made.open()
    yield made
    await made.close()


def owner(text: str) -> int:
    return owner_of(name_of("user:alice", text), SHARDS)


def foreign(door: int) -> str:
    """A key that another shard than this door's owns."""
    return next(text for text in map(str, range(100)) if owner(text) != door)


def test_keys_are_spread_over_the_shards() -> None:
    owners = [owner(str(number)) for number in range(1000)]
    assert all(200 < owners.count(shard) < 300 for shard in range(SHARDS))


async def test_a_key_is_known_at_every_door(four: Four) -> None:
    for text in map(str, range(8)):
        spids = [await four.send(door, text) for door in range(SHARDS)]
        assert len(set(spids)) == 1
    queued = await four.queued()
    assert sum(map(len, queued.values())) == 8
    for shard, recipients in queued.items():
        assert len(recipients) == sum(owner(str(number)) == shard for number in range(8))


async def test_uses_at_all_doors_at_once_are_one_message(four: Four) -> None:
    spids = await asyncio.gather(*(four.send(number % SHARDS, "same") for number in range(40)))
    assert len(set(spids)) == 1
    assert sum(map(len, (await four.queued()).values())) == 1


async def test_the_owner_has_the_message_as_it_was(four: Four) -> None:
    spid = await four.send(0, foreign(0))
    [recipient] = (await four.queued())[owner(foreign(0))]
    assert recipient.spid == spid
    assert recipient.envelope == Envelope(
        spid=spid, sender=SENDER, received=four.clock.now(), user="alice", body=Body.EIGHT
    )
    content = await four.stores[owner(foreign(0))].content(recipient)
    assert await content.read(1000) == BODY
    content.close()


async def test_a_large_message_goes_over_in_parts(four: Four) -> None:
    text, part = foreign(1), b"x" * 70_000 + b"\r\n"
    spids = set()
    for _ in range(2):
        key = key_of("user:alice", text, SENDER, [TO], b"")

        async def parts(key: Key = key) -> AsyncIterator[bytes]:
            for _ in range(8):
                read_on(key, part)
                yield part

        [recipient] = await four.doors[1].enqueue(four.submission(1, key, parts()))
        assert recipient.size == 8 * len(part)
        spids.add(recipient.spid)
    assert len(spids) == 1
    assert [each.size for each in (await four.queued())[owner(text)]] == [8 * len(part)]


async def test_another_message_is_refused_through_any_door(four: Four) -> None:
    text = foreign(0)
    await four.send(0, text)
    for door in range(SHARDS):
        with pytest.raises(Refused) as refused:
            await four.send(door, text, b"other\r\n")
        assert refused.value.reply.code == 554


async def test_without_its_owner_a_message_is_refused_for_now(four: Four) -> None:
    text = foreign(0)
    first = await four.send(0, text)
    await four.owning[owner(text)].close()
    with pytest.raises(StoreUnavailable):
        await four.send(0, text)
    await four.restart(owner(text))
    assert await four.send(0, text) == first


async def test_a_connection_that_has_ended_is_made_again(four: Four) -> None:
    text = foreign(0)
    first = await four.send(0, text)
    await four.restart(owner(text))
    assert await four.send(0, text) == first


async def test_a_door_that_leaves_has_used_no_key(four: Four) -> None:
    text = foreign(0)
    key = key_of("user:alice", text, SENDER, [TO], BODY)
    started = asyncio.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield BODY
        started.set()
        raise ConnectFailed("the client has left")

    with pytest.raises(ConnectFailed):
        await four.doors[0].enqueue(four.submission(0, key, parts()))
    assert started.is_set()
    spid = await four.send(2, text)
    assert [(each.spid, each.size) for each in (await four.queued())[owner(text)]] == [(spid, len(BODY))]


async def test_a_second_use_waits_without_blocking_others(four: Four) -> None:
    text = foreign(0)
    begun, go_on = asyncio.Event(), asyncio.Event()
    key = key_of("user:alice", text, SENDER, [TO], b"")

    async def parts() -> AsyncIterator[bytes]:
        read_on(key, BODY)
        yield BODY
        begun.set()
        await go_on.wait()

    first = asyncio.ensure_future(four.doors[0].enqueue(four.submission(0, key, parts())))
    await begun.wait()
    # The door has sent its part; the owner may still have to read it.
    while not four.stores[owner(text)]._live.shard.keys._turns:
        await asyncio.sleep(0)
    other = next(each for each in map(str, range(100)) if each != text and owner(each) == owner(text))
    second = asyncio.ensure_future(four.send(3, text))
    await four.send(0, other)
    assert not second.done()
    go_on.set()
    assert await second == (await first)[0].spid


async def test_mail_without_a_key_stays_where_it_came_in(four: Four) -> None:
    submission = replace(four.submission(3, key_of("x", "y", SENDER, [TO], BODY)), key=None)
    await four.doors[3].enqueue(submission)
    assert [len(each) for each in (await four.queued()).values()] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "octets", [b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x05\0\0\0nojso", b"GET / HTTP/1.0\r\n\r\n"]
)
async def test_other_octets_end_their_connection_alone(four: Four, octets: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(four.paths[0]))
    writer.write(octets)
    with suppress(ConnectionError):
        writer.write_eof()
        assert await reader.read() == b""
    writer.close()
    assert sum(map(len, (await four.queued()).values())) == 0
    text = next(each for each in map(str, range(100)) if owner(each) == 0)
    await four.send(1, text)


async def test_the_socket_is_for_the_servers_user_alone(four: Four) -> None:
    assert {stat.S_IMODE(path.stat().st_mode) for path in four.paths} == {0o600}
