"""TLS at a real door: STARTTLS, TLS from the first octet, what is forgotten, and logins that need it."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import AuthType, ListenerSettings, ListenerSslSettings
from mqcd.disk.durable import Disk
from mqcd.net.securing.server import ListenerTls, ServerTlsTerms
from mqcd.submit import Door
from mqcd.submit.auth.binding import server_end_point
from mqcd.submit.users.file import changing
from mqcd.submit.users.passwords import make_user
from tests.fakes.certificates import Authority
from tests.fakes.clock import FakeClock
from tests.fakes.sasl import ScramClient
from tests.unit.submit.support import Client, House, open_house, server, until_gone

pytestmark = pytest.mark.needs("openssl")
ALICE = make_user("alice@example.net", "wonderland")
EHLO = "EHLO client.example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("mx", "DNS:mx.example.org")
    made.sign("alice", f"email:{ALICE.name}")
    return made


def signed(authority: Authority, name: str) -> Path:
    return authority.certificate.with_name(f"{name}.pem")


def secure(house: House, authority: Authority, **changes: Any) -> House:
    """The house with a door that has TLS."""
    certificate = signed(authority, "mx")
    settings = ListenerSslSettings(**{"latent": True, "certfile": (certificate,), **changes})
    tls = ListenerTls()
    tls.use(tls.load(ServerTlsTerms(certificates=[certificate], trust=settings.trust)))
    listener = ListenerSettings(name="test", port=0, ssl=settings, server=house.door.settings.server)
    house.door = Door(listener, house.store, house.clock, house.observer, inline_max=65536, tls=tls)
    return house


def context_of(authority: Authority, ours: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if ours:
        context.load_cert_chain(signed(authority, ours))
    return context


@asynccontextmanager
async def plain(house: House) -> AsyncIterator[Client]:
    """A client whose connection has just begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
    client = Client(reader, writer)
    try:
        yield client
    finally:
        await client.close()


async def turn_to_tls(client: Client, context: ssl.SSLContext) -> ssl.SSLObject:
    await client.writer.start_tls(context, server_hostname="mx.example.org")
    found: ssl.SSLObject = client.writer.get_extra_info("ssl_object")
    return found


@asynccontextmanager
async def latent(house: House, context: ssl.SSLContext) -> AsyncIterator[Client]:
    """A client that has turned to TLS by STARTTLS."""
    async with plain(house) as client:
        await client.reply()
        assert "STARTTLS\r\n" in await client.say(EHLO)
        assert await client.say("STARTTLS") == "220 2.0.0 Ready to start TLS\r\n"
        await turn_to_tls(client, context)
        yield client


async def deliver(client: Client, sender: str = "from@example.net", content: bytes = b"hello\r\n") -> str:
    for line in (EHLO, f"MAIL FROM:<{sender}>", "RCPT TO:<to@example.com>", "DATA"):
        assert (await client.say(line))[0] in "23"
    return await client.send(content + b".\r\n")


@pytest.mark.parametrize("tls_first", [True, False])
async def test_a_client_too_many_hears_nothing_without_tls(authority: Authority, tls_first: bool) -> None:
    house = secure(House(server(maxpeerconnections=1)), authority, latent=not tls_first)
    async with open_house(house), plain(house), plain(house) as second:
        assert (await second.reader.read())[:4] == (b"" if tls_first else b"421 ")
    assert house.reasons()[0] == "connections"


async def test_mail_by_starttls(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), latent(house, context_of(authority)) as client:
        assert "STARTTLS" not in await client.say(EHLO)
        assert (await deliver(client)).startswith("250 ")
        [recipient] = await house.queued()
        assert recipient.envelope.tls == "TLSv1.3"
        handle = await house.store.content(recipient)
        assert b" with ESMTPS id " in await handle.read(handle.size)
        handle.close()
        assert await client.say("QUIT") == "221 2.0.0 mx.example.org closing\r\n"
        assert await client.reader.read() == b""


async def test_mail_with_tls_from_the_first_octet(authority: Authority) -> None:
    house = secure(House(server()), authority, latent=False)
    async with open_house(house), plain(house) as client:
        await turn_to_tls(client, context_of(authority))
        assert (await client.reply()).startswith("220 mx.example.org ")
        assert (await deliver(client)).startswith("250 ")
        [recipient] = await house.queued()
        assert recipient.envelope.tls == "TLSv1.3"


async def test_a_large_message_comes_through_tls(authority: Authority) -> None:
    house = secure(House(server()), authority)
    content = b"".join(b"%07d\r\n" % number for number in range(200_000))
    async with open_house(house), latent(house, context_of(authority)) as client:
        assert (await deliver(client, content=content)).startswith("250 ")
        [recipient] = await house.queued()
        assert await house.content(recipient) == content


async def test_pipelined_commands_are_answered_over_tls(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), latent(house, context_of(authority)) as client:
        client.writer.write(b"EHLO c\r\n" + b"NOOP\r\n" * 5000 + b"QUIT\r\n")
        replies = await client.reader.read(-1)
        assert replies.count(b"250 2.0.0 Ok\r\n") == 5000
        assert replies.endswith(b"closing\r\n")


@pytest.mark.parametrize("injected", ["NOOP", "MAIL FROM:<evil@example.net>", "\x16\x03\x01"])
async def test_nothing_survives_starttls(authority: Authority, injected: str) -> None:
    """What somebody has put behind STARTTLS is not read as commands of the client (CVE-2011-0411)."""
    house = secure(House(server()), authority)
    async with open_house(house), plain(house) as client:
        await client.reply()
        await client.say(EHLO)
        client.writer.write(f"STARTTLS\r\n{injected}\r\n".encode())
        assert await client.reader.read() == b"421 4.7.0 Commands sent ahead of TLS, closing\r\n"
        assert house.reasons() == ["sequence"]


async def test_octets_between_the_reply_and_the_handshake_end_it(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), plain(house) as client:
        await client.reply()
        await client.say(EHLO)
        await client.say("STARTTLS")
        client.writer.write(b"MAIL FROM:<evil@example.net>\r\n")
        answer = await client.reader.read()
        assert b"250" not in answer
        assert b"421" not in answer
        assert house.reasons() == ["tls"]
        await until_gone(house)


async def test_the_client_is_forgotten_at_starttls(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), latent(house, context_of(authority)) as client:
        assert (await client.say("MAIL FROM:<from@example.net>")).startswith("503 5.5.1 ")


async def test_a_plain_client_is_held_off_by_mandatory_tls(authority: Authority) -> None:
    house = secure(House(server()), authority, mandatory=True)
    async with open_house(house):
        async with plain(house) as client:
            await client.reply()
            await client.say(EHLO)
            assert (await client.say("MAIL FROM:<a@example.net>")).startswith("530 5.7.0 ")
        async with latent(house, context_of(authority)) as client:
            assert (await deliver(client)).startswith("250 ")


@pytest.mark.parametrize("begin", [b"", b"EHLO client\r\n", b"\x16\x03\x01\x00\x05hello"])
async def test_a_client_without_tls_gets_no_octet_in_clear(authority: Authority, begin: bytes) -> None:
    house = secure(House(server()), authority, latent=False)
    async with open_house(house), plain(house) as client:
        client.writer.write(begin)
        client.writer.write_eof()
        answer = await client.reader.read()
        assert b"mx.example.org" not in answer
        assert b"421" not in answer
        await until_gone(house)
        assert house.reasons() == ["tls"]


async def test_a_handshake_has_the_listener_s_timeout(authority: Authority) -> None:
    clock = FakeClock()
    house = secure(House(server(timeout=2000), clock=clock), authority, latent=False)
    async with open_house(house), plain(house) as client:
        client.writer.write(b"\x16\x03")
        while not house.door.sessions:
            await asyncio.sleep(0)
        await clock.run_for(4000)
        assert await client.reader.read() == b""
        assert house.reasons() == ["timeout"]


async def test_a_stop_ends_handshakes_and_sessions(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), latent(house, context_of(authority)) as client, plain(house) as waiting:
        for line in ("220", EHLO, "STARTTLS"):
            assert await (waiting.reply() if line == "220" else waiting.say(line))
        await house.door.stop()
        assert (await client.reader.read()).startswith(b"421 4.3.2 ")
        assert await waiting.reader.read() == b""


async def test_a_session_stays_when_certificates_are_exchanged(authority: Authority, tmp_path: Path) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), latent(house, context_of(authority)) as client:
        other = Authority(tmp_path)
        certificate = other.sign("mx", "DNS:mx.example.org")
        house.door.tls.use(house.door.tls.load(ServerTlsTerms(certificates=[certificate])))
        assert (await deliver(client)).startswith("250 ")
        async with latent(house, context_of(other)) as newer:
            assert (await deliver(newer)).startswith("250 ")


async def test_tls_is_switched_by_a_reload(authority: Authority) -> None:
    house = secure(House(server()), authority)
    async with open_house(house), plain(house) as client:
        await client.reply()
        ssl_settings = replace(house.door.settings.ssl, latent=False)
        house.door.reload(house.door.settings.server, ssl_settings)
        assert "STARTTLS" in await client.say(EHLO)
        async with plain(house) as newer:
            await turn_to_tls(newer, context_of(authority))
            assert (await newer.reply()).startswith("220 ")


class Seeing:
    """Remembers what the session said of TLS."""

    seen: list[tuple[Any, Any]] = []  # noqa: RUF012

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        await server.push("250-2.1.0 soon")
        self.seen.append((session.host_name, session.ssl))
        envelope.mail_from = address
        return "250 2.1.0 Ok"


async def test_hooks_see_a_new_session_with_tls(authority: Authority) -> None:
    Seeing.seen.clear()
    house = secure(House(server(filter=f"{Seeing.__module__}:{Seeing.__name__}")), authority)
    async with open_house(house), latent(house, context_of(authority)) as client:
        assert (await deliver(client)).startswith("250 ")
    [(name, tls)] = Seeing.seen
    assert name == "client.example"
    assert tls["ssl_object"].version() == "TLSv1.3"


# ---------------------------------------------------------------- logins


@asynccontextmanager
async def house_of_users(authority: Authority, directory: Path, **changes: Any) -> AsyncIterator[House]:
    with changing(directory / "users", Disk()) as found:
        found[ALICE.name] = ALICE
    settings = server(users=directory / "users", authtypes=tuple(AuthType), maxbadreqs=0)
    house = secure(House(settings), authority, **changes)
    async with open_house(house):
        yield house
    house.door.logins.close()


async def scram_plus(client: Client, binding: bytes) -> str:
    """The reply to a login with this binding."""
    scram = ScramClient(ALICE.name, "wonderland", flag="p=tls-server-end-point", binding=binding)
    reply = await client.say("AUTH SCRAM-SHA-256-PLUS " + b64encode(scram.first()).decode())
    reply = await client.say(b64encode(scram.final(b64decode(reply[4:]))).decode())
    if reply.startswith("334 "):
        assert scram.trusts(b64decode(reply[4:]))
        reply = await client.say("")
    return reply


async def test_scram_plus_binds_the_login_to_the_certificate(authority: Authority, tmp_path: Path) -> None:
    async with (
        house_of_users(authority, tmp_path) as house,
        latent(house, context_of(authority)) as client,
    ):
        assert "AUTH SCRAM-SHA-256-PLUS " in await client.say(EHLO)
        certificate = client.writer.get_extra_info("ssl_object").getpeercert(True)
        assert (await scram_plus(client, b"of another certificate")).startswith("535 ")
        assert (await scram_plus(client, server_end_point(certificate))).startswith("235 ")
        assert (await deliver(client, ALICE.name)).startswith("250 ")
        [recipient] = await house.queued()
        assert (recipient.envelope.user, recipient.envelope.tls) == (ALICE.name, "TLSv1.3")
        handle = await house.store.content(recipient)
        assert b" with ESMTPSA id " in await handle.read(handle.size)
        handle.close()


@pytest.mark.parametrize(("ours", "reply"), [("alice", "235"), ("mx", "504"), ("", "504")])
async def test_external_is_for_the_names_in_the_certificate(
    authority: Authority, tmp_path: Path, ours: str, reply: str
) -> None:
    async with (
        house_of_users(authority, tmp_path, trust=authority.certificate) as house,
        latent(house, context_of(authority, ours)) as client,
    ):
        assert ("EXTERNAL" in await client.say(EHLO)) == (ours != "")
        expected = "535" if ours == "mx" else reply
        assert (await client.say("AUTH EXTERNAL =")).startswith(expected)


async def test_a_certificate_of_another_authority_ends_the_handshake(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    other.sign("alice", f"email:{ALICE.name}")
    context = context_of(authority)
    context.load_cert_chain(signed(other, "alice"))
    async with (
        house_of_users(authority, tmp_path, trust=authority.certificate) as house,
        plain(house) as client,
    ):
        await client.reply()
        await client.say(EHLO)
        await client.say("STARTTLS")
        assert await refused_by_tls(client, context)
        await until_gone(house)
        assert house.reasons() == ["tls"]


async def refused_by_tls(client: Client, context: ssl.SSLContext) -> bool:
    """Whether the handshake fails; with TLS 1.3 the client sees that at its first read only."""
    try:
        await turn_to_tls(client, context)
        return await client.say(EHLO) == ""
    except (ssl.SSLError, ConnectionError):
        return True
