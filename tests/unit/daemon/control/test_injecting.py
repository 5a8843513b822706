"""Messages over the control socket: by the rules of programs' mail, durable when answered, once for a key."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.injecting import user_of
from mqcd.net.credentials import user_name
from mqcd.ops.http.server import MAX_BODY, Request
from tests.unit.daemon.support import Running, running

MESSAGE = b"Subject: one\n\nline\n.dot\n"


class OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def post(path: Path, body: bytes, fields: dict[str, str]) -> tuple[int, str]:
    connection = OverSocket(path)
    connection.request("POST", "/v1/messages", body, fields)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


async def ask(house: Running, body: bytes, **fields: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    path = house.server.settings.ops.control.path
    status, text = await asyncio.to_thread(post, path, body, named)
    return status, json.loads(text) if status == 200 else text


async def test_a_message_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        envelope = {"X_Mqcd_From": "me@here.example", "X_Mqcd_To": "a@x.example, b@y.example"}
        status, value = await ask(house, MESSAGE, **envelope)
        assert status == 200
        assert [row["accepted"] for row in value["recipients"]] == [True, True]
        while house.observer.count(Verb.DELIVERED) < 2:
            house.observer.news.clear()
            await house.observer.news.wait()
        assert b"\r\n.dot\r\n" in house.arrived[0].content
        heard = house.observer.of(Verb.DELIVERED)
        assert {format_spid(each.recipient.spid) for each in heard if each.recipient} == {value["spid"]}


async def test_a_message_as_json_refused_in_part(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        fields = {"from": "me@here.example", "to": ["a@x.example", "b@@x"], "content": MESSAGE.decode()}
        status, value = await ask(house, json.dumps(fields).encode(), Content_Type="application/json")
        assert status == 200
        assert [row["accepted"] for row in value["recipients"]] == [True, False]
        assert value["recipients"][1]["reply"].startswith("5")


async def test_a_message_refused_as_a_whole(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        status, text = await ask(house, MESSAGE, X_Mqcd_From="me@here.example", X_Mqcd_To="b@@x")
        assert (status, "b@@x" in text) == (422, True)


async def test_a_key_gives_one_message(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        envelope = {"X_Mqcd_From": "me@here.example", "X_Mqcd_To": "a@x.example", "X_Mqcd_Key": "order-7"}
        first = await ask(house, MESSAGE, **envelope)
        assert await ask(house, MESSAGE, **envelope) == first
        assert house.observer.count(Verb.ACCEPTED) == 1


async def test_a_message_is_held_under_a_name(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        for number, hold in enumerate(("spring-7", "spring-7", "other", "")):
            fields = {"from": "me@here.example", "to": [f"a{number}@x.example"], "content": MESSAGE.decode()}
            body = json.dumps({**fields, "hold": hold} if hold else fields).encode()
            assert (await ask(house, body, Content_Type="application/json"))[0] == 200
        found = Selection(where=parse_where("hold = spring-7", 0))
        held = [each async for each in house.server.store.scan(found)]
        assert [(each.area, each.due, each.address) for each in held] == [
            (Area.HELD, 0, "a0@x.example"),
            (Area.HELD, 0, "a1@x.example"),
        ]


async def test_one_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        limit = house.server.settings.submit.local.maxmsgsize
        envelope = {"X_Mqcd_From": "me@here.example", "X_Mqcd_To": "a@x.example"}
        status, text = await ask(house, bytes(limit + (2 << 20)), **envelope)
        assert (status, str(limit) in text) == (413, True)


async def test_slow_large_messages_keep_no_small_one_waiting(tmp_path: Path) -> None:
    head = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    async with running(tmp_path) as house, AsyncExitStack() as slow:
        for length in (MAX_BODY + 1, MAX_BODY + 1, MAX_BODY, MAX_BODY):
            reader, writer = await asyncio.open_unix_connection(house.server.settings.ops.control.path)
            slow.callback(writer.close)
            writer.write(head % length)
            assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        envelope = {"X_Mqcd_From": "me@here.example", "X_Mqcd_To": "a@x.example"}
        assert (await ask(house, MESSAGE, **envelope))[0] == 200


@pytest.mark.parametrize("hold", ["a b", "x" * 65, "a=b"])
async def test_a_hold_is_one_plain_word(tmp_path: Path, hold: str) -> None:
    async with running(tmp_path) as house:
        envelope = {"X_Mqcd_From": "me@here.example", "X_Mqcd_To": "a@x.example", "X_Mqcd_Hold": hold}
        status, text = await ask(house, MESSAGE, **envelope)
        assert (status, text.startswith("hold:")) == (400, True)


@pytest.mark.parametrize(
    "envelope",
    [{}, {"X_Mqcd_From": "a@b.example"}, {"X_Mqcd_From": "a b", "X_Mqcd_To": "c@d.example"}],
)
async def test_an_envelope_that_is_none_is_refused(tmp_path: Path, envelope: dict[str, str]) -> None:
    async with running(tmp_path) as house:
        assert (await ask(house, MESSAGE, **envelope))[0] == 400


def test_a_token_is_the_user_of_its_name() -> None:
    request = Request(method="POST", path="/v1/messages", uid=os.geteuid(), author="token:crm")
    assert user_of(request) == "token:crm"
    assert user_of(replace(request, author="")) == user_name(os.geteuid())
