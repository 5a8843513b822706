"""A door behind a proxy: whom the proxy names is the client; nobody else may name one."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import ListenerSslSettings
from mqcd.net.securing.server import ServerTlsTerms
from mqcd.submit.checks.listed import NetworkList
from tests.fakes.certificates import Authority
from tests.fakes.clock import FakeClock
from tests.unit.submit.support import LOOPBACK, House, open_house, server, visit
from tests.unit.submit.test_door_tls import context_of, deliver, plain, turn_to_tls

HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.2 12345 25\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes((192, 0, 2, 7, 198, 51, 100, 2)) + b"\x30\x39\x00\x19"
LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"


def behind(house: House, *networks: str) -> House:
    """The house behind proxies of these networks; none = this machine."""
    found = tuple(map(ipaddress.ip_network, networks)) or (LOOPBACK,)
    house.door.proxies = NetworkList(found)
    return house


@pytest.mark.parametrize(
    ("header", "client"),
    [(HEADER, "192.0.2.7"), (V2, "192.0.2.7"), (LOCAL, "127.0.0.1"), (b"PROXY UNKNOWN\r\n", "127.0.0.1")],
)
async def test_mail_is_that_of_the_client(header: bytes, client: str) -> None:
    house = behind(House(server()))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(header)
        assert (await visitor.reply()).startswith("220 ")
        assert (await deliver(visitor)).startswith("250 ")
        [recipient] = await house.queued()
        assert recipient.envelope.client == client
        handle = await house.store.content(recipient)
        assert f"([{client}])".encode() in await handle.read(handle.size)
        handle.close()


async def test_ipv4_inside_ipv6_is_ipv4() -> None:
    house = behind(House(server()))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(b"PROXY TCP6 ::ffff:192.0.2.7 2001:db8::2 12345 25\r\n")
        await visitor.reply()
        assert (await deliver(visitor)).startswith("250 ")
        [recipient] = await house.queued()
        assert recipient.envelope.client == "192.0.2.7"


@pytest.mark.parametrize(("named", "reply"), [("192.0.2.7", "250"), ("192.0.2.8", "554")])
async def test_rights_are_those_of_the_client(named: str, reply: str) -> None:
    house = behind(House(server(relay_clients=(ipaddress.ip_network("192.0.2.7"),))))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(HEADER.replace(b"192.0.2.7", named.encode()))
        await visitor.reply()
        for line in ("EHLO c", "MAIL FROM:<from@example.net>"):
            await visitor.say(line)
        assert (await visitor.say("RCPT TO:<any@elsewhere.example>")).startswith(reply)


async def test_connections_are_limited_by_client() -> None:
    house = behind(House(server(maxpeerconnections=1)))
    async with open_house(house), plain(house) as one, plain(house) as two, plain(house) as other:
        for visitor, address in ((one, b"192.0.2.7"), (two, b"192.0.2.7"), (other, b"192.0.2.8")):
            visitor.writer.write(HEADER.replace(b"192.0.2.7", address))
            reply = await visitor.reply()
            assert reply.startswith("421 4.7.0 " if visitor is two else "220 ")
        [refused] = [heard.refusal for heard in house.observer.heard if heard.refusal is not None]
        assert refused.client == "192.0.2.7"


@pytest.mark.parametrize(
    "start", [b"EHLO client.example\r\n", b"PROXY TCP4 nonsense\r\n", b"\r\n\r\n\0\r\nQUIX\n"]
)
async def test_a_proxy_without_a_header_is_turned_away(start: bytes) -> None:
    house = behind(House(server()))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(start)
        assert await all_read(visitor.reader) == b""
        assert house.reasons() == ["proxy"]


async def all_read(reader: asyncio.StreamReader) -> bytes:
    """What comes up to the end, which may be a reset: what was sent is not read."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_header_that_does_not_come_in_time_ends_the_connection() -> None:
    clock = FakeClock()
    house = behind(House(server(), clock=clock))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(b"PROXY TCP4 ")
        while not house.door.waiting:
            await asyncio.sleep(0)
        await clock.run_for(11_000)
        assert await all_read(visitor.reader) == b""
        assert house.reasons() == ["proxy"]
        assert house.door.waiting == 0


async def test_a_stop_does_not_wait_for_a_header() -> None:
    house = behind(House(server()))
    async with open_house(house), plain(house) as visitor:
        while not house.door.waiting:
            await asyncio.sleep(0)
        await house.door.stop()
        assert await all_read(visitor.reader) == b""


@pytest.mark.parametrize("networks", [(), ("192.0.2.0/24", "2001:db8::/32")])
async def test_nobody_else_may_name_a_client(networks: tuple[str, ...]) -> None:
    house = House(server())
    if networks:
        behind(house, *networks)
    async with open_house(house), visit(house) as visitor:
        assert (await visitor.say(HEADER.decode().strip())).startswith("421 4.7.0 ")
        assert await visitor.reader.read() == b""
        assert house.reasons() == ["proxy"]


class Peeking:
    """Remembers who the session said that its peer is."""

    seen: list[Any] = []  # noqa: RUF012

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        self.seen.append(session.peer[0])
        envelope.mail_from = address
        return "250 2.1.0 Ok"


async def test_hooks_see_the_client() -> None:
    Peeking.seen.clear()
    house = behind(House(server(filter=f"{Peeking.__module__}:{Peeking.__name__}")))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(HEADER)
        await visitor.reply()
        assert (await deliver(visitor)).startswith("250 ")
    assert Peeking.seen == ["192.0.2.7"]


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("latent", [True, False])
async def test_tls_follows_the_header(tmp_path: Path, latent: bool) -> None:
    authority = Authority(tmp_path)
    certificate = authority.sign("mx", "DNS:mx.example.org")
    house = behind(House(server()))
    tls = house.door.tls
    tls.use(tls.load(ServerTlsTerms(certificates=[certificate])))
    house.door.reload(server(), ListenerSslSettings(latent=latent, certfile=(certificate,)))
    async with open_house(house), plain(house) as visitor:
        visitor.writer.write(HEADER)
        if latent:
            for line in ("", "EHLO c", "STARTTLS"):
                assert (await (visitor.say(line) if line else visitor.reply()))[0] == "2"
        await turn_to_tls(visitor, context_of(authority))
        if not latent:
            assert (await visitor.reply()).startswith("220 ")
        assert (await deliver(visitor)).startswith("250 ")
        [recipient] = await house.queued()
        assert (recipient.envelope.client, recipient.envelope.tls) == ("192.0.2.7", "TLSv1.3")
