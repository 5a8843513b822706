"""The control socket's client against real sockets: answers, streams, and servers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mqcd.page.client import QUICK, UPLOADS, ControlClient, Crowded, Question, ServerDown

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(path: Path, talk: Talk) -> AsyncIterator[list[bytes]]:
    """Serves `talk` after the head of each request; gives the heads."""
    heads: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await talk(reader, writer)
        writer.close()

    async with await asyncio.start_unix_server(connected, str(path)):
        yield heads


def saying(octets: bytes) -> Talk:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(octets)

    return talk


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"


async def test_an_answer_is_given_whole(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with server(path, saying(OK + b'{"a":1}')) as heads:
        answer = await ControlClient(path).ask(Question.get("/v1/x", {"q": "a b&c"}))
    assert (answer.status, answer.content_type, answer.json()) == (200, "application/json", {"a": 1})
    assert heads[0].startswith(b"GET /v1/x?q=a+b%26c HTTP/1.1\r\n")


async def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with server(path, saying(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nwhy\n")):
        answer = await ControlClient(path).ask(Question.get("/v1/x"))
    assert (answer.good, answer.text) == (False, "why")


async def test_a_change_carries_its_author(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with server(path, saying(OK + b'{"a":1}')) as heads:
        await ControlClient(path).ask(Question.post("/v1/batch", {"action": "hold"}, "alice"))
    assert b"X-Mqcd-Author: alice\r\n" in heads[0]
    assert b"Content-Type: application/json\r\n" in heads[0]


async def test_a_stream_gives_pieces_as_they_come(tmp_path: Path) -> None:
    path, more = tmp_path / "s", asyncio.Event()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\none")
        await more.wait()
        writer.write(b"two")

    async with server(path, talk), ControlClient(path).stream(Question.get("/")) as stream:
        assert await anext(stream.pieces) == b"one"
        more.set()
        assert await anext(stream.pieces) == b"two"


async def test_a_long_path_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    short = tmp_path / "s"
    async with server(short, saying(OK + b'{"a":1}')):
        short.rename(deep / "s")
        assert (await ControlClient(deep / "s").ask(Question.get("/"))).good
        (deep / "s").rename(short)


async def test_no_server_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ServerDown, match="no server runs at"):
        await ControlClient(tmp_path / "none").ask(Question.get("/"))


@pytest.mark.parametrize(
    ("octets", "text"),
    [(b"", "broke off"), (OK + b"{", "broke off"), (b"220 mail.test ESMTP\r\n", "broke off")],
)
async def test_an_answer_cut_short_is_no_answer(tmp_path: Path, octets: bytes, text: str) -> None:
    path = tmp_path / "s"
    async with server(path, saying(octets)):
        with pytest.raises(ServerDown, match=text):
            await ControlClient(path).ask(Question.get("/"))


async def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    path, end = tmp_path / "s", asyncio.Event()

    async def talk(*_: object) -> None:
        await end.wait()

    async with server(path, talk):
        with pytest.raises(ServerDown, match="silent"):
            await ControlClient(path, ask_s=0.01).ask(Question.get("/"))
        end.set()


async def test_octets_of_fields_pass_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "s"
    question = Question(method="POST", path="/", content_type="a/b; c=\xe9", fields={"X-Mqcd-Key": "\xfc"})
    async with server(path, saying(OK + b'{"a":1}')) as heads:
        assert (await ControlClient(path).ask(question)).good
    assert b"X-Mqcd-Key: \xfc\r\n" in heads[0]
    assert b"Content-Type: a/b; c=\xe9\r\n" in heads[0]


async def test_a_server_that_goes_before_the_body_is_down(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def upload() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * (1 << 16)

    question = Question(method="POST", path="/", upload=upload(), length=64 << 16)
    async with server(path, saying(b"")):
        with pytest.raises(ServerDown, match="has gone"):
            await ControlClient(path).ask(question)


async def test_slow_uploads_keep_nobody_from_asking(tmp_path: Path) -> None:
    path, end = tmp_path / "s", asyncio.Event()

    async def upload() -> AsyncIterator[bytes]:
        await end.wait()
        yield b"x"

    slow = [Question(method="POST", path="/", upload=upload(), length=1) for _ in range(2 * UPLOADS)]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if heads[-1].startswith(b"POST"):
            await reader.readexactly(1)
        writer.write(OK + b'{"a":1}')

    async with server(path, talk) as heads:
        client = ControlClient(path)
        under_way = [asyncio.ensure_future(client.ask(each)) for each in slow]
        assert (await client.ask(Question.get("/"))).good
        assert (await client.ask(Question(path="/", searches=True))).good
        end.set()
        assert all(each.good for each in await asyncio.gather(*under_way))


async def test_an_upload_does_not_wait_for_ever(tmp_path: Path) -> None:
    path, end = tmp_path / "s", asyncio.Event()

    async def upload() -> AsyncIterator[bytes]:
        await end.wait()
        yield b"x"

    def large() -> Question:
        return Question(method="POST", path="/", upload=upload(), length=1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(OK + b'{"a":1}')

    async with server(path, talk):
        client = ControlClient(path, wait_s=0.01)
        under_way = [asyncio.ensure_future(client.ask(large())) for _ in range(UPLOADS)]
        await asyncio.sleep(0)
        with pytest.raises(Crowded):
            await client.ask(large())
        end.set()
        assert all(each.good for each in await asyncio.gather(*under_way))
        assert (await client.ask(large())).good


@pytest.mark.parametrize(
    "slow",
    [
        Question(method="POST", path="/v1/messages", mail=True),
        Question.post("/v1/batch", {"action": "hold", "dry_run": True}, ""),
    ],
)
async def test_mail_and_counts_keep_nobody_from_asking(tmp_path: Path, slow: Question) -> None:
    path, end = tmp_path / "s", asyncio.Event()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if heads[-1].startswith(b"POST"):
            await end.wait()
        writer.write(OK + b'{"a":1}')

    async with server(path, talk) as heads:
        client = ControlClient(path)
        under_way = [asyncio.ensure_future(client.ask(slow)) for _ in range(QUICK)]
        assert (await client.ask(Question.get("/"))).good
        end.set()
        assert all(each.good for each in await asyncio.gather(*under_way))
