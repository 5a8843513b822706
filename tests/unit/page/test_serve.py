"""Real connections: peers that send nothing, or too much, and an end while some are open."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mqcd.config.settings import PageSettings
from mqcd.net.listening import bind
from mqcd.page import bounds
from mqcd.page import serve as serving
from mqcd.page.serve import LOOK_MS, serve
from tests.fakes.certificates import Authority
from tests.fakes.control import said
from tests.unit.page.support import NAME, Site, secret

GET = f"GET /v1/areas HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {secret('reader')}\r\n".encode()

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[int]:
    """Gives its port."""
    site.control.answers["/v1/areas"] = said([])
    sockets, ended = await bind("127.0.0.1", 0), asyncio.Event()
    port: int = sockets[0].getsockname()[1]
    # Until the server listens by itself connections wait.
    sockets[0].listen()
    running = asyncio.ensure_future(serve(site.app(), site.terms, sockets, ended, site.clock))
    try:
        yield port
    finally:
        ended.set()
        await running


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def status(connection: Connection, request: bytes) -> bytes:
    reader, writer = connection
    writer.write(request)
    return (await reader.readuntil(b"\r\n\r\n"))[9:12]


async def gone(connection: Connection) -> bool:
    """Waits for the end of a connection."""
    try:
        return await connection[0].read(1) == b""
    except ConnectionError:
        return True


async def test_a_connection_takes_several_requests(site: Site) -> None:
    async with served(site) as port, connected(port) as connection:
        assert await status(connection, GET + b"\r\n") == b"200"
        await connection[0].readuntil(b"0\r\n\r\n")
        assert await status(connection, GET + b"\r\n") == b"200"


@pytest.mark.parametrize("begun", [b"", b"GET", GET])
async def test_a_peer_without_a_request_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.05)
    async with served(site) as port, connected(port) as connection:
        connection[1].write(begun)
        assert await gone(connection)


async def test_idle_peers_do_not_deafen_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST", 2)
    async with served(site) as port, connected(port) as first, connected(port), connected(port):
        assert await gone(first)
        async with connected(port) as connection:
            assert await status(connection, GET + b"\r\n") == b"200"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"220 mail.test ESMTP\r\n\r\n", b"400"),
        (GET + b"X: " + b"x" * 40_000, b"400"),
        (GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (GET + b"Host: evil.test\r\n\r\n", b"400"),
        (GET + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n", b"200"),
    ],
)
async def test_a_wrong_request_gets_400(site: Site, request_: bytes, expected: bytes) -> None:
    async with served(site) as port, connected(port) as connection:
        assert await status(connection, request_) == expected


async def test_the_end_does_not_wait_for_idle_peers(site: Site) -> None:
    async with served(site) as port:
        idle = await asyncio.open_connection("127.0.0.1", port)
        async with connected(port) as connection:
            assert await status(connection, GET + b"\r\n") == b"200"
    assert await gone(idle)
    idle[1].close()


async def certificate_of(port: int) -> bytes:
    """The one that a client is shown now."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


async def test_a_replaced_certificate_is_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = authority.sign("one.test", "DNS:one.test")
    site = Site(tmp_path, PageSettings(enabled=True, certfile=file))
    async with served(site) as port:
        first = await certificate_of(port)
        file.write_text("damage")
        await site.clock.run_for(LOOK_MS)
        assert await certificate_of(port) == first
        authority.sign("two.test", "DNS:two.test").rename(file)
        await site.clock.run_for(LOOK_MS)
        assert await certificate_of(port) != first


async def test_a_body_that_stalls_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BODY_S", 0.05)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer {secret('injector')}\r\n"
    async with served(site) as port, connected(port) as connection:
        request = f"{head}Content-Type: message/rfc822\r\nContent-Length: 9\r\n\r\nhalf"
        assert await status(connection, request.encode()) == b"408"


@pytest.mark.parametrize("closing", [False, True])
async def test_a_peer_that_reads_nothing_is_cut_off(
    site: Site, monkeypatch: pytest.MonkeyPatch, closing: bool
) -> None:
    monkeypatch.setattr(serving, "SEND_S", 0.05)
    lost = asyncio.Event()

    class Watched(serving._Connection):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if closing:
                # No write is paused: what is left is sent after the close.
                transport.set_write_buffer_limits(1 << 30)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    monkeypatch.setattr(serving, "_Connection", Watched)
    asked = GET + b"Connection: close\r\n\r\n" if closing else (GET + b"\r\n") * 3
    async with served(site) as port:
        site.control.answers["/v1/areas"] = said("x" * (16 << 20))
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(asked)
            async with asyncio.timeout(5):
                await lost.wait()
