"""Pages by which commands look into a queue that its server alone can read."""

from __future__ import annotations

import os
from http import HTTPStatus

import pytest

from mqcd.core.spid import format_spid
from mqcd.daemon.looking import CONTENT, RECORDS, Looking
from mqcd.ops.fanout import Fanout
from mqcd.ops.http.server import Request
from mqcd.queue.format import record
from tests.contract.mail import BODY, Post
from tests.fakes.clock import FakeClock
from tests.fakes.store import MemoryStore

UID = os.geteuid()


@pytest.fixture
async def post() -> Post:
    clock = FakeClock()
    store = MemoryStore(clock, Fanout())
    await store.open()
    await store.recovered()
    return Post(store, clock)


def asked(path: str, query: str = "", body: bytes = b"", uid: int = UID) -> Request:
    return Request(method="POST", path=path, query=query, body=body, uid=uid)


async def test_records_say_what_is_in_flight(post: Post) -> None:
    [one] = await post.send("a@one.example")
    [other] = await post.send("b@two.example")
    [claimed] = await post.store.claim(1, post.clock.now())
    answer = await Looking(post.store).records(asked(RECORDS))
    assert claimed.key == one.key
    assert answer.body.splitlines(keepends=True) == [b"+" + record.encode(one), b"-" + record.encode(other)]
    answer = await Looking(post.store).records(asked(RECORDS, body=b'{"domain":"two.example"}'))
    assert answer.body == b"-" + record.encode(other)
    answer = await Looking(post.store).records(asked(RECORDS, body=b'{"where":"domain ~ one.*","now":1}'))
    assert answer.body == b"+" + record.encode(one)


async def test_content_comes_from_an_offset(post: Post) -> None:
    [one] = await post.send("a@one.example")
    for at in (0, 5, len(BODY), len(BODY) + 5):
        query = f"spid={format_spid(one.spid)}&at={at}"
        assert (await Looking(post.store).content(asked(CONTENT, query))).body == BODY[at:]


@pytest.mark.parametrize(
    ("query", "uid", "status"),
    [
        (f"spid={'0' * 16}", UID + 1, HTTPStatus.FORBIDDEN),
        (f"spid={'0' * 16}", UID, HTTPStatus.NOT_FOUND),
        ("spid=x", UID, HTTPStatus.BAD_REQUEST),
        (f"spid={'0' * 16}&at=x", UID, HTTPStatus.BAD_REQUEST),
    ],
)
async def test_other_questions_are_refused(post: Post, query: str, uid: int, status: HTTPStatus) -> None:
    assert (await Looking(post.store).content(asked(CONTENT, query, uid=uid))).status == status


async def test_a_selection_that_is_not_understood_is_refused(post: Post) -> None:
    answer = await Looking(post.store).records(asked(RECORDS, body=b'{"colour":"red"}'))
    assert answer.status == HTTPStatus.BAD_REQUEST
