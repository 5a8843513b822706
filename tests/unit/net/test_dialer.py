"""Connections over loopback."""

import asyncio
import contextlib
import os
import resource
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcd.core.errors import ConnectFailed, LocalShortage, TlsFilesUnusable
from mqcd.core.ports import TlsTerms
from mqcd.net.dialer import MAX_UNREAD, StreamConnection, SystemDialer
from mqcd.net.tls import client_context
from tests.fakes.certificates import Authority

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def dialled(handler: Handler) -> AsyncIterator[StreamConnection]:
    """A connection to a server whose other end `handler` serves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await SystemDialer().dial("127.0.0.1", server.sockets[0].getsockname()[1], "")
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await server.wait_closed()


async def read_all(connection: StreamConnection) -> bytes:
    parts = []
    while data := await connection.read():
        parts.append(data)
    return b"".join(parts)


async def test_octets_go_both_ways_and_the_end_comes_after_them() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))

    async with dialled(echo) as connection:
        assert connection.remote_addr == "127.0.0.1"
        assert connection.source_addr == "127.0.0.1"
        assert connection.tls == ""
        connection.write(b"hello")
        await connection.drain()
        assert await read_all(connection) == b"hello"
        assert await connection.read() == b""


async def until_heard(connection: StreamConnection) -> None:
    while connection.quiet:
        await asyncio.sleep(0)


async def test_a_connection_is_quiet_until_something_comes() -> None:
    asked, said = asyncio.Event(), asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        writer.write(b"hello")
        await writer.drain()
        await said.wait()

    async with dialled(server) as connection:
        assert connection.quiet
        asked.set()
        await until_heard(connection)
        assert await connection.read() == b"hello"
        assert connection.quiet
        said.set()
        await until_heard(connection)
        assert await connection.read() == b""


async def test_a_refused_connection_says_why() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectFailed, match="Connection refused"):
        await SystemDialer().dial("127.0.0.1", port, "")


async def test_the_source_address_is_ours_to_choose() -> None:
    seen = asyncio.get_running_loop().create_future()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peername")[0])
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await SystemDialer().dial("127.0.0.1", port, "127.0.0.2")
    assert await seen == "127.0.0.2"
    connection.close()
    server.close()


async def test_a_source_address_that_is_not_ours_is_named() -> None:
    # RFC 5737: addresses of documentation are nobody's.
    with pytest.raises(ConnectFailed, match=r"^source address 192\.0\.2\.9 is not on this machine \("):
        await SystemDialer().dial("127.0.0.1", 25, "192.0.2.9")


async def test_closing_wakes_who_reads() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with dialled(wait) as connection:
        reading = asyncio.ensure_future(connection.read())
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectFailed, match="this side"):
            await reading
        connection.write(b"into nothing")
        with pytest.raises(ConnectFailed):
            await connection.drain()


async def test_a_reset_is_an_error() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with dialled(reset) as connection:
        connection.write(b"x" * 10_000_000)
        with pytest.raises(ConnectFailed):
            await connection.drain()


async def test_what_nobody_reads_is_bounded_and_nothing_is_lost() -> None:
    octets = 4 * 1024 * 1024

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * octets)
        await writer.drain()

    async with dialled(pour) as connection:
        first = await connection.read()
        while len(connection._unread) <= MAX_UNREAD:
            await asyncio.sleep(0)
        assert len(connection._unread) < octets // 2
        assert len(first) + len(await read_all(connection)) == octets


async def ask_for_tls(connection: StreamConnection) -> None:
    """What a server of `server_tls` waits for, and its answer."""
    connection.write(b"T")
    assert await connection.read() == b"go"


def server_tls(context: ssl.SSLContext, seen: list[Any] | None = None) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"go")
        try:
            await writer.start_tls(context)
            if seen is not None:
                seen.append(writer.get_extra_info("peercert"))
            writer.write(await reader.readexactly(5))
        except OSError:
            return

    return handle


@pytest.fixture(scope="module")
def server_context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's context with a certificate of an authority that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path_factory.mktemp("tls")).sign("localhost", "DNS:localhost"))
    return context


@pytest.mark.needs("openssl")
async def test_tls_without_verification_takes_any_certificate(server_context: ssl.SSLContext) -> None:
    async with dialled(server_tls(server_context)) as connection:
        await ask_for_tls(connection)
        await connection.start_tls("mx.example.org", TlsTerms())
        assert connection.tls == "TLSv1.3"
        connection.write(b"hello")
        assert await connection.read() == b"hello"


@pytest.mark.needs("openssl")
async def test_verification_refuses_an_untrusted_certificate(
    server_context: ssl.SSLContext,
) -> None:
    async with dialled(server_tls(server_context)) as connection:
        await ask_for_tls(connection)
        with pytest.raises(ConnectFailed, match="certificate not accepted"):
            await connection.start_tls("localhost", TlsTerms(verify=True))


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("terms", [TlsTerms(), TlsTerms(verify=True)])
async def test_the_server_is_told_which_name_is_wanted(
    server_context: ssl.SSLContext, terms: TlsTerms
) -> None:
    names: list[str | None] = []
    server_context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with dialled(server_tls(server_context)) as connection:
        await ask_for_tls(connection)
        with contextlib.suppress(ConnectFailed):
            await connection.start_tls("mx.example.org", terms)
    server_context.sni_callback = None
    assert names == ["mx.example.org"]


@pytest.mark.needs("openssl")
async def test_a_greeting_that_comes_with_the_handshake_is_read(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path).sign("localhost", "DNS:localhost"))
    # Its server has the last word in the handshake.
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(b"220 hello\r\n")
        writer.write(outgoing.read())
        await reader.read()

    async with dialled(at_once) as connection:
        await connection.start_tls("localhost", TlsTerms())
        assert await asyncio.wait_for(connection.read(), 60) == b"220 hello\r\n"


async def test_a_server_that_cannot_do_tls_is_an_error() -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"500 what?\r\n")
        await reader.read(100)

    async with dialled(nonsense) as connection:
        with pytest.raises(ConnectFailed, match="TLS"):
            await connection.start_tls("localhost", TlsTerms())


async def test_a_handshake_that_never_ends_is_ended_by_closing() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with dialled(silence) as connection:
        starting = asyncio.ensure_future(connection.start_tls("localhost", TlsTerms()))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectFailed):
            await asyncio.wait_for(starting, 60)


async def test_a_peer_that_leaves_in_the_handshake_is_an_error() -> None:
    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with dialled(leaving) as connection:
        with pytest.raises(ConnectFailed):
            await asyncio.wait_for(connection.start_tls("localhost", TlsTerms()), 60)


@pytest.mark.needs("openssl")
async def test_a_trusted_certificate_with_the_hosts_name_is_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("mx", "DNS:mx.example.org"))
    terms = TlsTerms(verify=True, trust=str(authority.certificate))
    async with dialled(server_tls(context)) as connection:
        await ask_for_tls(connection)
        await connection.start_tls("mx.example.org", terms)
        assert connection.tls == "TLSv1.3"
    async with dialled(server_tls(context)) as connection:
        await ask_for_tls(connection)
        with pytest.raises(ConnectFailed, match="mismatch"):
            await connection.start_tls("other.example.org", terms)
    context.load_cert_chain(authority.sign("late", "DNS:mx.example.org", days=-1))
    async with dialled(server_tls(context)) as connection:
        await ask_for_tls(connection)
        with pytest.raises(ConnectFailed, match="expired"):
            await connection.start_tls("mx.example.org", terms)


@pytest.mark.needs("openssl")
async def test_our_certificate_is_shown_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("mx", "DNS:mx.example.org"))
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    # In TLS 1.3 the server's refusal comes after the handshake; what is asked here is what it sees.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    ours = tmp_path / "ours.pem"
    for name in ("first", "second"):
        ours.write_bytes(authority.sign(name, f"DNS:{name}.example").read_bytes())
        os.utime(ours, ns=(0, len(name)))
        seen: list[Any] = []
        async with dialled(server_tls(context, seen)) as connection:
            await ask_for_tls(connection)
            await connection.start_tls("mx.example.org", TlsTerms(certificate=str(ours)))
            connection.write(b"hello")
            assert await connection.read() == b"hello"
        assert seen[0]["subjectAltName"] == (("DNS", f"{name}.example"),)


@pytest.mark.parametrize(
    "terms", [TlsTerms(certificate="/nowhere.pem"), TlsTerms(verify=True, trust="/nowhere")]
)
async def test_own_tls_files_that_cannot_be_loaded_are_named(terms: TlsTerms) -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with dialled(silence) as connection:
        with pytest.raises(TlsFilesUnusable, match="cannot load TLS"):
            await connection.start_tls("localhost", terms)


def test_contexts_are_made_once() -> None:
    assert client_context(TlsTerms()) is client_context(TlsTerms())
    assert client_context(TlsTerms(verify=True)).verify_mode is ssl.CERT_REQUIRED


async def test_a_shortage_of_descriptors_is_ours() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
    try:
        with pytest.raises(LocalShortage):
            await SystemDialer().dial("127.0.0.1", 9, "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
