"""Pages by which commands look into a queue that its server alone can read."""

from __future__ import annotations

import json
import os
from http import HTTPStatus
from pathlib import Path

import pytest

from mqcd.core.queueing.spid import format_spid
from mqcd.daemon.control.api.binding import answering
from mqcd.daemon.control.looking import CONTENT, MOMENT, RECORDS, UNFILED, Looking
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.ops.fanout import Fanout
from mqcd.ops.http.server import Request
from mqcd.queue.format import record
from mqcd.stores.mapping import MappingStore
from mqcd.stores.queue.exporting import EventFiles
from mqcd.stores.queue.moment import unpack
from mqcd.stores.queue.stored_queue import StoredQueue
from tests.contract.harness import SCHEDULE
from tests.contract.mail import BODY, Post
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore

UID = os.geteuid()


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore(FakeClock(), Fanout())
    await made.open()
    return made


@pytest.fixture
def post(store: MemoryStore) -> Post:
    return Post(store, FakeClock())


def asked(path: str, query: str = "", body: bytes = b"", uid: int = UID) -> Request:
    return Request(method="POST", path=path, query=query, body=body, uid=uid)


async def test_records_say_what_is_in_flight(store: MemoryStore, post: Post) -> None:
    [one] = await post.send("a@one.example")
    [other] = await post.send("b@two.example")
    [claimed] = await post.store.claim(1, post.clock.now())
    answer = await Looking(store).records(asked(RECORDS))
    assert claimed.key == one.key
    assert answer.body.splitlines(keepends=True) == [b"+" + record.encode(one), b"-" + record.encode(other)]
    answer = await Looking(store).records(asked(RECORDS, body=b'{"domain":"two.example"}'))
    assert answer.body == b"-" + record.encode(other)
    answer = await Looking(store).records(asked(RECORDS, body=b'{"where":"domain ~ one.*","now":1}'))
    assert answer.body == b"+" + record.encode(one)


async def test_a_moment_has_all_recipients(store: MemoryStore, post: Post) -> None:
    [one] = await post.send("a@one.example")
    [other] = await post.send("b@two.example")
    await post.store.claim(1, post.clock.now())
    moment = unpack((await Looking(store).moment(asked(MOMENT))).body)
    assert moment.records == [b"+" + record.encode(one), b"-" + record.encode(other)]
    assert (moment.newest, moment.events, moment.shared) == (0, [], False)


async def test_content_comes_from_an_offset(store: MemoryStore, post: Post) -> None:
    [one] = await post.send("a@one.example")
    for at in (0, 5, len(BODY), len(BODY) + 5):
        query = f"spid={format_spid(one.spid)}&at={at}"
        assert (await Looking(store).content(asked(CONTENT, query))).body == BODY[at:]


@pytest.mark.parametrize(
    ("query", "uid", "status"),
    [
        (f"spid={'0' * 16}", UID + 1, HTTPStatus.FORBIDDEN),
        (f"spid={'0' * 16}", UID, HTTPStatus.NOT_FOUND),
        ("spid=x", UID, HTTPStatus.BAD_REQUEST),
        (f"spid={'0' * 16}&at=x", UID, HTTPStatus.BAD_REQUEST),
    ],
)
async def test_other_questions_are_refused(
    store: MemoryStore, post: Post, query: str, uid: int, status: HTTPStatus
) -> None:
    assert (await answering(Looking(store).content)(asked(CONTENT, query, uid=uid))).status == status


async def test_a_selection_that_is_not_understood_is_refused(store: MemoryStore, post: Post) -> None:
    answer = await answering(Looking(store).records)(asked(RECORDS, body=b'{"colour":"red"}'))
    assert answer.status == HTTPStatus.BAD_REQUEST


async def test_events_without_a_file_are_given_by_message(tmp_path: Path) -> None:
    clock = FakeClock()
    files = EventFiles(directory=tmp_path, source=Source("n", 0), retention=Retention())
    store = StoredQueue(MappingStore(), clock, Fanout(), SCHEDULE, files)
    await store.open()
    await store.recovered()
    post = Post(store, clock)
    [one] = await post.send("a@one.example")
    await post.send("b@two.example")
    [line] = (await Looking(store).events(asked(UNFILED, f"spid={format_spid(one.spid)}"))).body.splitlines()
    assert json.loads(line)["recipient"] == one.address
    said = await answering(Looking(store).events)(asked(UNFILED, "spid=x"))
    assert said.status == HTTPStatus.BAD_REQUEST
    await store.close()
