"""The ops listener over real loopback connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.ops.http.exchange import parse_request
from mqcd.ops.http.hosts import KnownHosts
from mqcd.ops.http.server import (
    MAX_BODY,
    MAX_CONNECTIONS,
    MAX_HEAD,
    TIME_LIMIT_MS,
    Answer,
    HttpServer,
    Pages,
    Request,
    Resource,
)
from tests.fakes.clock import FakeClock


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.asked: list[Request] = []
        pages: Pages = {
            "/both": Resource(self._page, self._page),
            "/mail/{spid}/content": self._page,
            "/stream": self._stream,
            "/short": self._short,
            "/upload": Resource(post=self._upload, reads=True),
            "/page": self._page,
            "/broken": self._broken,
            "/big": self._big,
            "/change": Resource(post=self._page),
            "/slow": self._slow,
            "/search": Resource(self._slow, searches=True),
        }
        self.server = HttpServer(pages, self.clock, KnownHosts(["mx.example", "x"]))
        self.release = asyncio.Event()
        self.closed = False
        self.port = 0

    def _page(self, request: Request) -> Answer:
        self.asked.append(request)
        return Answer(body=b"hello\n")

    async def _slow(self, request: Request) -> Answer:
        self.asked.append(request)
        await self.release.wait()
        return Answer(body=b"late\n")

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one "
            yield b"two"
        finally:
            self.closed = True

    def _stream(self, request: Request) -> Answer:
        return Answer(chunks=self._parts())

    def _short(self, request: Request) -> Answer:
        return Answer(chunks=self._parts(), length=9)

    async def _upload(self, request: Request) -> Answer:
        assert request.chunks is not None
        size = 0
        async for chunk in request.chunks:
            size += len(chunk)
        return Answer(body=b"%d\n" % size)

    def _broken(self, request: Request) -> Answer:
        raise KeyError("a secret")

    def _big(self, request: Request) -> Answer:
        return Answer(body=b"x" * 3_000_000)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, octets: bytes) -> tuple[int, dict[str, str], bytes]:
        reader, writer = await self.open()
        writer.write(octets)
        try:
            return parse(await reader.read())
        finally:
            writer.close()

    async def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        return await self.ask(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    async def until_sleepers(self, count: int) -> None:
        """Until so many requests are being waited for; the test's own time limit guards it."""
        while self.clock.sleepers != count:
            await asyncio.sleep(0)


def parse(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    assert line.startswith("HTTP/1.1 ")
    return int(line.split()[1]), dict(field.split(": ", 1) for field in fields), body


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.port = await bench.server.bind("127.0.0.1", 0)
    await bench.server.listen()
    yield bench
    await bench.server.stop()


async def test_a_page(bench: Bench) -> None:
    status, fields, body = await bench.get("/page?a=1&b")
    assert (status, body) == (200, b"hello\n")
    assert fields["Content-Length"] == "6"
    assert fields["Connection"] == "close"
    assert bench.asked == [Request(method="GET", path="/page", query="a=1&b", host="x")]


async def test_head_is_the_same_without_the_body(bench: Bench) -> None:
    status, fields, body = await bench.get("/page", method="HEAD")
    assert (status, fields["Content-Length"], body) == (200, "6", b"")


async def test_a_refused_head_has_no_body_either(bench: Bench) -> None:
    status, fields, body = await bench.ask(b"HEAD /page HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
    assert (status, body) == (421, b"")
    assert int(fields["Content-Length"]) > 0


async def test_a_big_page_comes_whole(bench: Bench) -> None:
    _, _, body = await bench.get("/big")
    assert len(body) == 3_000_000


async def test_an_unknown_page_names_the_known_ones(bench: Bench) -> None:
    status, _, body = await bench.get("/elsewhere")
    assert status == 404
    assert b"/big /both /broken /change" in body


async def test_other_methods_are_not_allowed(bench: Bench) -> None:
    status, fields, _ = await bench.get("/page", method="POST")
    assert (status, fields["Allow"]) == (405, "GET, HEAD")
    assert bench.asked == []


async def test_a_resource_is_looked_at_and_changed(bench: Bench) -> None:
    assert (await bench.get("/both"))[0] == 200
    assert (await bench.get("/both", method="POST"))[0] == 200
    status, fields, _ = await bench.get("/both", method="PUT")
    assert (status, fields["Allow"]) == (405, "GET, HEAD, POST")


async def test_a_path_may_hold_names(bench: Bench) -> None:
    assert (await bench.get("/mail/a%20b/content"))[0] == 200
    assert bench.asked[0].names == {"spid": "a b"}
    assert (await bench.get("/mail/a/b/content"))[0] == 404


async def test_a_stream_ends_with_the_connection(bench: Bench) -> None:
    status, fields, body = await bench.get("/stream")
    assert (status, body, bench.closed) == (200, b"one two", True)
    assert "Content-Length" not in fields


async def test_a_stream_that_is_short_lacks_octets(bench: Bench) -> None:
    _, fields, body = await bench.get("/short")
    assert (fields["Content-Length"], bench.closed) == ("9", True)
    assert len(body) < 9


async def test_head_closes_a_stream(bench: Bench) -> None:
    reader, writer = await bench.open()
    writer.write(b"HEAD /short HTTP/1.1\r\nHost: x\r\n\r\n")
    _, fields, body = parse(await reader.read())
    writer.close()
    assert (fields["Content-Length"], body, bench.closed) == ("9", b"", True)


async def test_a_stream_is_closed_for_a_peer_that_has_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: asyncio.StreamWriter) -> None:
        raise ConnectionResetError("made to fail")

    monkeypatch.setattr(asyncio.StreamWriter, "drain", broken)
    reader, writer = await bench.open()
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    assert bench.closed


async def test_a_peer_that_goes_amid_a_stream_is_no_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = asyncio.StreamWriter.write

    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    def as_uvloop_does(writer: asyncio.StreamWriter, data: bytes) -> None:
        if writer.is_closing():
            raise RuntimeError("the handler is closed")
        write(writer, data)

    reader, writer = await bench.open()
    monkeypatch.setattr(asyncio.StreamWriter, "drain", cut)
    monkeypatch.setattr(asyncio.StreamWriter, "write", as_uvloop_does)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    with suppress(ConnectionError):
        await reader.read()
    writer.close()
    while not bench.closed:
        await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_upload_may_be_long(bench: Bench) -> None:
    size = MAX_BODY * 3
    head = f"POST /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {size}\r\n\r\n"
    reader, writer = await bench.open()
    writer.write(head.encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(bytes(size))
    assert parse(await reader.read())[2] == b"%d\n" % size
    writer.close()


@pytest.mark.parametrize(("uid", "by"), [(os.geteuid(), "token:a"), (0, "token:a"), (4711, "uid:4711")])
def test_only_the_servers_user_speaks_for_others(uid: int, by: str) -> None:
    request = parse_request(b"GET / HTTP/1.1\r\nHost: x\r\nX-Mqcd-Author: token:a\r\n\r\n")
    assert request is not None
    assert replace(request, uid=uid).by == by


@pytest.mark.parametrize("author", ["a b", "a\tb", "\xe4"])
def test_an_author_is_one_word(author: str) -> None:
    head = f"GET / HTTP/1.1\r\nHost: x\r\nX-Mqcd-Author: {author}\r\n\r\n"
    request = parse_request(head.encode("latin-1"))
    assert request is not None
    assert not request.author


async def test_a_page_that_fails_says_nothing_of_why(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    status, _, body = await bench.get("/broken")
    assert status == 500
    assert b"secret" not in body
    assert "a secret" in caplog.text
    assert (await bench.get("/page"))[0] == 200


@pytest.mark.parametrize(
    "octets",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /page\r\n\r\n",
        b"GET /page HTTP/2\r\n\r\n",
        b"\xff \xff \xff\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_told_so(bench: Bench, octets: bytes) -> None:
    assert (await bench.ask(octets))[0] == 400


async def test_a_request_that_ends_early(bench: Bench) -> None:
    reader, writer = await bench.open()
    writer.write(b"GET /page HTTP/1.1\r\n")
    writer.write_eof()
    assert parse(await reader.read())[0] == 400
    writer.close()


async def test_an_endless_request_is_cut_off(bench: Bench) -> None:
    assert (await bench.ask(b"GET /page HTTP/1.1\r\nX: " + b"x" * 4 * MAX_HEAD))[0] == 431


async def test_a_silent_peer_is_cut_off(bench: Bench) -> None:
    reader, writer = await bench.open()
    writer.write(b"GET /page")
    await bench.until_sleepers(1)
    bench.clock.advance(TIME_LIMIT_MS)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"408" in head
    await bench.until_sleepers(1)
    bench.clock.advance(TIME_LIMIT_MS)
    assert b"too long" in await reader.read()
    writer.close()


async def test_a_search_has_more_time_than_a_page(bench: Bench) -> None:
    answers = {path: asyncio.ensure_future(bench.get(path)) for path in ("/slow", "/search")}
    while len(bench.asked) < 2:
        await asyncio.sleep(0)
    bench.clock.advance(TIME_LIMIT_MS)
    assert (await answers["/slow"])[0] == 504
    bench.release.set()
    assert (await answers["/search"])[2] == b"late\n"


async def test_the_oldest_idle_connection_makes_room(bench: Bench) -> None:
    idle = [await bench.open() for _ in range(MAX_CONNECTIONS)]
    await bench.until_sleepers(MAX_CONNECTIONS)
    assert (await bench.get("/page"))[0] == 200
    assert await idle[0][0].read() == b""
    idle[1][1].write(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
    assert parse(await idle[1][0].read())[0] == 200
    for _, writer in idle:
        writer.close()


async def test_connections_being_answered_are_not_cut_off(bench: Bench) -> None:
    busy = [await bench.open() for _ in range(MAX_CONNECTIONS)]
    for _, writer in busy:
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await bench.until_sleepers(MAX_CONNECTIONS)
    assert (await bench.get("/page"))[0] == 503
    bench.release.set()
    assert [parse(await reader.read())[0] for reader, _ in busy] == [200] * MAX_CONNECTIONS
    for _, writer in busy:
        writer.close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9125", "[::1]:9125", "192.0.2.7", "LocalHost:1", "MX.example", "mx.example.:80"],
)
async def test_own_names_and_addresses_are_answered(bench: Bench, host: str) -> None:
    assert (await bench.ask(f"GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:9125",
        "evil.example:x",
        "mx.example.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "2130706433",
        "[evil]",
        "a b",
    ],
)
async def test_other_names_are_refused(bench: Bench, host: str) -> None:
    status, _, body = await bench.ask(f"GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (status, bench.asked) == (421, [])
    assert b"ops/hosts" in body


async def test_names_are_not_looked_at_without_hosts(bench: Bench) -> None:
    bench.server.hosts = None
    assert (await bench.ask(b"GET /page HTTP/1.1\r\nHost: evil.example\r\n\r\n"))[0] == 200


async def test_an_action_is_given_its_body(bench: Bench) -> None:
    status, _, _ = await bench.ask(b"POST /change HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    assert status == 200
    assert bench.asked[0].body == b"{}"
    status, fields, _ = await bench.get("/change")
    assert (status, fields["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("field", "status"),
    [("Content-Length: 65537", 413), ("Content-Length: -1", 411), ("Transfer-Encoding: chunked", 411)],
)
async def test_a_body_of_no_bounded_length_is_refused(bench: Bench, field: str, status: int) -> None:
    assert (await bench.ask(f"POST /change HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode()))[0] == status


async def test_a_stop_cuts_off_who_waits(bench: Bench) -> None:
    reader, writer = await bench.open()
    await bench.until_sleepers(1)
    await bench.server.stop()
    assert await reader.read() == b""
    writer.close()
    await bench.server.stop()
    with pytest.raises(OSError, match=str(bench.port)):
        await bench.open()


async def test_nobody_connects_before_it_listens() -> None:
    server = HttpServer({}, FakeClock())
    port = await server.bind("127.0.0.1", 0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    await server.stop()


WITH_QUERY = Request(method="GET", path="/a", query="b?c", host="x")
OF_A_KIND = Request(method="GET", path="/", accept="a/b;q=1", host="x")


@pytest.mark.parametrize(
    ("head", "request_"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", Request(method="GET", path="/")),
        (b"GET /a?b?c HTTP/1.1\r\nA: b\r\nhost: x\r\n\r\n", WITH_QUERY),
        (b"GET / HTTP/1.1\r\naCCept: a/b;q=1\r\nAccept-Encoding: x\r\nHost: x \r\n\r\n", OF_A_KIND),
        (b"GET http://x/a?b?c HTTP/1.1\r\nHost: y\r\n\r\n", WITH_QUERY),
        (b"GET HTTP://x HTTP/1.1\r\nHost: y\r\nAccept: a/b;q=1\r\n\r\n", OF_A_KIND),
        (b"GET http://x HTTP/1.1\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", None),
        (b"GET / HTTP/1.1 x\r\n\r\n", None),
        (b"G-T / HTTP/1.1\r\n\r\n", None),
    ],
)
def test_requests(head: bytes, request_: Request | None) -> None:
    assert parse_request(head) == request_


@given(st.binary(max_size=300))
def test_any_octets_are_a_request_or_none(octets: bytes) -> None:
    request = parse_request(octets)
    assert request is None or (request.path, request.length >= -1) == (request.path.partition("?")[0], True)
    parse_request(b"GET / HTTP/1.1\r\nHost: " + octets + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("[::1]:80", True),
        ("127.0.0.1", True),
        ("LOCALHOST.", True),
        ("[localhost]", False),
        ("[127.0.0.1]", False),
        ("[mx.example]", False),
    ],
)
def test_brackets_are_around_ipv6_alone(host: str, admitted: bool) -> None:
    assert KnownHosts(["mx.example"]).admits(host) is admitted


@given(st.text(max_size=60))
def test_any_host_is_admitted_or_not(host: str) -> None:
    assert KnownHosts(["mx.example"]).admits(host) in (True, False)
