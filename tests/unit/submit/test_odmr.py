"""ATRN at a door: the roles are reversed on the same connection, in clear and over TLS (RFC 2645)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import AuthType, ListenerProtocol
from mqcd.core.ports import Connection
from mqcd.disk.durable import Disk
from mqcd.submit import Door
from mqcd.submit.esmtp.calls import Collect
from mqcd.submit.users.file import changing
from mqcd.submit.users.passwords import make_user
from tests.fakes.certificates import Authority
from tests.fakes.held import HOLDING, FakeHeld
from tests.unit.submit.support import Client, House, open_house, server, until_gone, visit
from tests.unit.submit.test_door_tls import context_of, latent, secure


class Sender(FakeHeld):
    """Sends a line, and keeps what comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""
        self.tls = ""
        self.waits = False

    async def collect(
        self, call: Collect, connection: Connection, session: str, stops: Callable[[], bool]
    ) -> None:
        self.tls = connection.tls
        connection.write(b"EHLO mx.example.org\r\n")
        self.heard = await connection.read()
        while self.waits and not stops():
            await asyncio.sleep(0)


def odmr_house(path: Path) -> House:
    """A house whose door is for ODMR, with a user."""
    with changing(path, Disk()) as found:
        found["bob"] = make_user("bob", "builder")
    return for_odmr(House(server(users=path, authtypes=(AuthType.PLAIN,), authtypes_ssl=())))


def for_odmr(house: House) -> House:
    """The house with a door for ODMR."""
    listener = replace(house.door.settings, protocol=ListenerProtocol.ODMR)
    tls = house.door.tls
    house.door = Door(listener, house.store, house.clock, house.observer, inline_max=65536, tls=tls)
    return house


async def log_in(client: Client) -> None:

    await client.say("EHLO client.example")
    assert (await client.say("AUTH PLAIN AGJvYgBidWlsZGVy")).startswith("235 ")


async def test_the_roles_are_reversed(tmp_path: Path) -> None:
    house, held = odmr_house(tmp_path / "users"), Sender()
    house.door.hold(HOLDING, held)
    async with open_house(house), visit(house) as client:
        await log_in(client)
        assert (await client.say("ATRN atrn.example")).startswith("250 2.0.0 ")
        assert await client.reply() == "EHLO mx.example.org\r\n"
        assert await client.say("250 customer.example") == ""
        assert held.heard == b"250 customer.example\r\n"
        assert house.door.sessions == 0


async def test_the_roles_are_reversed_within_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("mx", "DNS:mx.example.org")
    house, held = for_odmr(secure(odmr_house(tmp_path / "users"), authority)), Sender()
    house.door.hold(HOLDING, held)
    async with open_house(house), latent(house, context_of(authority)) as client:
        await log_in(client)
        assert (await client.say("ATRN atrn.example")).startswith("250 2.0.0 ")
        assert await client.reply() == "EHLO mx.example.org\r\n"
        assert await client.say("250 customer.example") == ""
        assert (held.heard, held.tls) == (b"250 customer.example\r\n", "TLSv1.3")
        await until_gone(house)


async def test_a_stop_ends_a_reversed_session(tmp_path: Path) -> None:
    house, held = odmr_house(tmp_path / "users"), Sender()
    held.waits = True
    house.door.hold(HOLDING, held)
    async with open_house(house), visit(house) as client:
        await log_in(client)
        await client.say("ATRN atrn.example")
        await client.reply()
        client.writer.write(b"250 customer.example\r\n")
        await house.door.stop()
        assert house.door.sessions == 0


async def test_what_comes_behind_atrn_ends_the_session(tmp_path: Path) -> None:
    house, held = odmr_house(tmp_path / "users"), Sender()
    house.door.hold(HOLDING, held)
    async with open_house(house), visit(house) as client:
        await log_in(client)
        assert (await client.say("ATRN atrn.example\r\n220 customer.example")).startswith("421 4.5.0 ")
        assert await client.reply() == ""
        assert not held.heard
