"""The LevelDB store: its keys, what it finds left over, and kills."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import plyvel  # type: ignore[import-not-found, import-untyped, unused-ignore]
import pytest

from mqcd.core.errors import ContentUnavailable, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.stores.backend import StoreFull
from mqcd.stores.leveldb import CHUNK, LeveldbStore
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import Post, chunks, deferred, delivered, read_all
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.unit.stores.kills import check, killed

LONG = bytes(range(256)) * 8000


async def opened(path: Path) -> tuple[StoredQueue, Post]:
    clock = FakeClock()
    queue = StoredQueue(LeveldbStore(path), clock, RecordingObserver(), SCHEDULE)
    await queue.open()
    await queue.recovered()
    return queue, Post(queue, clock)


def keys(path: Path) -> list[str]:
    with plyvel.DB(str(path)) as db:
        return [key.decode() for key in db.iterator(include_value=False)]


async def test_keys_are_what_the_documentation_says(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    submission = post.submission("a@example.org", "b@example.org", content=b"x" * (CHUNK + 1))
    envelope = replace(submission.envelope, zone="bulk")
    await queue.enqueue(replace(submission, envelope=envelope))
    [other] = await post.send("c@example.org")
    await queue.close()
    name, last = f"{envelope.spid:016X}", f"{other.spid:016X}"
    assert keys(tmp_path) == [
        f"delivery-zone bulk {name} 0000000001",
        f"delivery-zone bulk {name} 0000000002",
        f"delivery-zone default {last} 0000000001",
        "mark clock",
        "mark events",
        "mark spids",
        f"message {name} #",
        f"message {name} *",
        f"message {name} 000001",
        f"message {name} 000002",
        f"message {last} #",
        f"message {last} *",
        f"message {last} 000001",
    ]
    queue, post = await opened(tmp_path)
    await post.settle(delivered(), *await post.claim_all())
    await queue.close()
    assert keys(tmp_path) == ["mark clock", "mark events", "mark spids"]


async def test_chunks_without_a_message_are_collected(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    await post.send("a@example.org")
    await queue.close()
    before = keys(tmp_path)
    with plyvel.DB(str(tmp_path)) as db:
        for number in (1, 2):
            db.put(b"message 0000000000000007 %06d" % number, b"half")
    queue, post = await opened(tmp_path)
    await queue.close()
    assert keys(tmp_path) == before


async def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    queue, _ = await opened(tmp_path)
    with pytest.raises(StoreBusy):
        await LeveldbStore(tmp_path).open()
    await queue.close()


async def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    queue, _ = await opened(tmp_path)
    await queue.close()
    (tmp_path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreDamaged, match=tmp_path.name):
        await LeveldbStore(tmp_path).open()


async def test_a_start_names_a_damaged_table(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    await post.send("a@example.org")
    await queue.close()
    queue, _ = await opened(tmp_path)
    await queue.close()
    for path in tmp_path.glob("*.ldb"):
        path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])
    with pytest.raises(StoreDamaged, match=tmp_path.name):
        await opened(tmp_path)


async def test_a_message_in_a_damaged_block_can_end(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    submission = post.submission("a@example.org", content=os.urandom(CHUNK))
    await queue.enqueue(replace(submission, envelope=replace(submission.envelope, zone="bulk")))
    await queue.close()
    queue, post = await opened(tmp_path)
    [claimed] = await post.claim_all()
    [table] = tmp_path.glob("*.ldb")
    with table.open("r+b") as file:
        file.seek(CHUNK // 2)
        file.write(bytes(64))
    with pytest.raises(ContentUnavailable):
        await queue.content(claimed)
    await post.settle(deferred(post.clock.now()), claimed)
    await post.settle(delivered(), *await post.claim_all())
    await queue.close()
    assert keys(tmp_path) == ["mark clock", "mark events", "mark spids"]


class Failing:
    """A database that fails to read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise self._error

        return fail


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (plyvel.CorruptionError(b"Corruption: bad block type"), StoreUnavailable),
        (plyvel.IOError(b"IO error: 1.log: Input/output error"), StoreUnavailable),
        (plyvel.IOError(b"IO error: 1.log: No space left on device"), StoreFull),
    ],
    ids=["damage", "disk", "full"],
)
async def test_a_failure_may_be_tried_again(tmp_path: Path, error: Exception, failure: type) -> None:
    queue, post = await opened(tmp_path)
    store = queue._around.backend
    assert isinstance(store, LeveldbStore)
    await post.send("a@example.org")
    [claimed] = await post.claim_all()
    database, store._db = store._db, Failing(error)
    with pytest.raises(ContentUnavailable):
        await queue.content(claimed)
    with pytest.raises(StoreUnavailable) as raised:
        await post.settle(delivered(), claimed)
    assert raised.type is failure
    store._db = database
    await post.settle(delivered(), claimed)
    assert await post.scan() == {}
    await queue.close()


async def test_long_content_is_read_to_its_end(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    await queue.enqueue(post.submission("a@example.org", content=chunks(LONG)))
    [claimed] = await post.claim_all()
    content = await queue.content(claimed)
    head = await content.read(CHUNK + 5)
    await post.settle(delivered(), claimed)
    assert head + await read_all(content) == LONG
    await queue.close()


async def test_content_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    queue, post = await opened(tmp_path)
    [recipient] = await post.send("a@example.org")
    await queue.close()
    with plyvel.DB(str(tmp_path)) as db:
        db.delete(f"message {recipient.spid:016X} 000001".encode())
    queue, post = await opened(tmp_path)
    with pytest.raises(ContentUnavailable):
        await queue.content(recipient)
    await queue.close()


async def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    await check(killed("leveldb", str(tmp_path)), LeveldbStore(tmp_path))
