"""The front process: the pages of several shards as those of one server. Its shards are canned."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from mqcd.core.events import format_time
from mqcd.daemon.control.actions.orders import files_of
from mqcd.daemon.shards.division import control_path
from mqcd.daemon.shards.front import Front
from mqcd.disk.durable import Disk
from mqcd.net.clock import SystemClock
from mqcd.net.control.socket_file import ControlSocket
from mqcd.ops.http.server import Answer, HttpServer, Pages, Request, Resource

AT = 1_800_000_000_000
GRACE = 1000


def row(number: int) -> dict[str, Any]:
    return {"spid": f"{number:016X}", "qid": 1, "received": format_time(AT + number)}


class Shard:
    """Answers with rows of its own, and remembers who asked."""

    def __init__(self, numbers: list[int]) -> None:
        self.rows = [row(number) for number in numbers]
        self.by: list[str] = []
        self.pages: Pages = {
            "/v1/recipients": self.recipients,
            "/v1/count": lambda _: self.answer({"recipients": len(self.rows), "bytes": 1, "oldest": None}),
            "/v1/messages/{spid}": self.message,
            "/v1/messages/{spid}/content": self.content,
            "/v1/batch": Resource(post=self.begin),
            "/v1/rules": Resource(
                post=lambda _: self.answer({"rule": None, "matched": len(self.rows), "sample": []})
            ),
            "/readyz": lambda _: Answer(body=b"ok\n"),
        }

    def answer(self, value: object, status: int = 200) -> Answer:
        return Answer(body=json.dumps(value).encode())

    def recipients(self, request: Request) -> Answer:
        self.by.append(request.by)
        given = {name: texts[0] for name, texts in parse_qs(request.query).items()}
        limit, after = int(given.get("limit", 100)), given.get("after", "0")
        start = int(after.split(":")[2], 16) + 1 if after.startswith("age") else int(after)
        rows = [each for each in self.rows if int(each["spid"], 16) >= start]
        more = len(rows) > limit
        return self.answer(
            {"rows": rows[:limit], "next": str(int(rows[limit]["spid"], 16)) if more else None}
        )

    def begin(self, request: Request) -> Answer:
        fields = json.loads(request.body)
        self.batch = None if fields["dry_run"] else fields["id"]
        return self.answer({"batch": self.batch, "changed": 0})

    def message(self, request: Request) -> Answer:
        from http import HTTPStatus

        if any(each["spid"] == request.names["spid"] for each in self.rows):
            return self.answer(request.names)
        return Answer(status=HTTPStatus.NOT_FOUND, body=b"none\n")

    def content(self, request: Request) -> Answer:
        found = self.message(request)
        if found.status != 200:
            return found

        async def chunks() -> Any:
            yield b"one"
            yield b"two"

        return Answer(chunks=chunks(), length=6, content_type="message/rfc822")


@asynccontextmanager
async def served(directory: Path, *shards: Shard | None) -> AsyncIterator[Front]:
    """A front process before these shards; None = one that does not answer."""
    control = directory / "control.sock"
    servers, sockets = [], []
    try:
        for number, shard in enumerate(shards):
            if shard is not None:
                sockets.append(ControlSocket(control_path(control, number)))
                servers.append(HttpServer(shard.pages, SystemClock()))
                await servers[-1].serve(sockets[-1].bind("here"))
        yield Front(control, range(len(shards)), len(shards), directory / "batches", GRACE)
    finally:
        for server in servers:
            await server.stop()
        for socket in sockets:
            socket.close()


async def asked(front: Front, path: str, query: str = "", body: bytes = b"", **names: str) -> Answer:
    found = front.for_commands()[path]
    page = (found.post if body else found.get) if isinstance(found, Resource) else found
    assert page is not None
    method, uid = "POST" if body else "GET", os.geteuid() + 1
    target = path.format(**names)
    request = Request(method=method, path=target, query=query, body=body, names=names, uid=uid)
    answer = page(request)
    return answer if isinstance(answer, Answer) else await answer


async def numbers(front: Front, query: str) -> list[int]:
    """All that parts give, one after the other."""
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        answer = await asked(front, "/v1/recipients", query + (f"&after={after}" if after else ""))
        value = json.loads(answer.body)
        found += [int(each["spid"], 16) for each in value["rows"]]
        after = value["next"]
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_lists_go_over_all_shards(tmp_path: Path, limit: int) -> None:
    async with served(tmp_path, Shard([1, 4, 5]), Shard([]), Shard([2, 3, 6, 7])) as front:
        assert await numbers(front, f"limit={limit}") == [1, 4, 5, 2, 3, 6, 7]
        assert await numbers(front, f"limit={limit}&sort=age") == [1, 2, 3, 4, 5, 6, 7]


async def test_a_list_names_the_shards_it_lacks(tmp_path: Path) -> None:
    async with served(tmp_path, Shard([1]), None) as front:
        value = json.loads((await asked(front, "/v1/recipients")).body)
        assert [each["spid"] for each in value["rows"]] == [f"{1:016X}"]
        assert value["left_out"][0].startswith("shard 1: ")


async def test_a_count_lacks_none(tmp_path: Path) -> None:
    async with served(tmp_path, Shard([1, 2]), Shard([3])) as front:
        assert json.loads((await asked(front, "/v1/count")).body)["recipients"] == 3
    async with served(tmp_path, Shard([1, 2]), None) as front:
        assert (await asked(front, "/v1/count")).status == 503


async def test_a_dry_run_of_a_rule_names_the_shards_it_lacks(tmp_path: Path) -> None:
    async with served(tmp_path, Shard([1]), None) as front:
        body = b'{"action": "hold", "where": "age > 0s", "dry_run": true}'
        answer = await asked(front, "/v1/rules", body=body)
        value = json.loads(answer.body)
        assert (answer.status, value["matched"]) == (200, 1)
        assert value["left_out"][0].startswith("shard 1: ")


async def test_a_batch_is_recorded_for_a_shard_out_of_service(tmp_path: Path) -> None:
    shard, batches = Shard([1]), tmp_path / "batches"
    async with served(tmp_path, shard, None) as front:
        for more in (b', "dry_run": true', b', "selection": {"limit": 1}'):
            answer = await asked(front, "/v1/batch", body=b'{"action": "hold"' + more + b"}")
            [left_out] = json.loads(answer.body)["left_out"]
            assert (answer.status, left_out.startswith("shard 1: ")) == (200, True)
        assert not batches.exists()
        answer = await asked(front, "/v1/batch", body=b'{"action": "remove", "reason": "why"}')
        assert "when it is back" in str(json.loads(answer.body)["left_out"])
        [(_, order, _)] = files_of(Disk(), batches, 1, set())
        assert (order.batch.id, order.batch.reason) == (shard.batch, "why")
        assert order.batch.by == f"uid:{os.geteuid() + 1}"
        assert order.batch.until == order.batch.at + GRACE
    async with served(tmp_path, None, None) as front:
        assert (await asked(front, "/v1/batch", body=b'{"action": "hold"}')).status == 503
    assert len(list(batches.iterdir())) == 1


async def test_shards_learn_who_asks(tmp_path: Path) -> None:
    shard = Shard([1])
    async with served(tmp_path, shard) as front:
        await asked(front, "/v1/recipients")
    assert shard.by == [f"uid:{os.geteuid() + 1}"]


async def test_a_message_is_found_where_it_is(tmp_path: Path) -> None:
    async with served(tmp_path, Shard([1]), Shard([2])) as front:
        for number in (1, 2):
            spid = f"{number:016X}"
            assert json.loads((await asked(front, "/v1/messages/{spid}", spid=spid)).body) == {"spid": spid}
            content = await asked(front, "/v1/messages/{spid}/content", spid=spid)
            assert content.chunks is not None
            assert content.length == len(b"".join([each async for each in content.chunks])) == 6
        assert (await asked(front, "/v1/messages/{spid}", spid=f"{3:016X}")).status == 404


@pytest.mark.parametrize("after", ["9/1", "x/1", "x"])
async def test_a_list_begins_at_no_other_place(tmp_path: Path, after: str) -> None:
    async with served(tmp_path, Shard([1]), Shard([2])) as front:
        assert (await asked(front, "/v1/recipients", f"after={after}")).status == 400
