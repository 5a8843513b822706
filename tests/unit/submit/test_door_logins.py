"""Logins at a real door: threads, the user in envelope, header, zone and hooks, changed files."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import ZoneMatchSettings, ZoneSettings
from mqcd.disk.durable import Disk
from mqcd.submit.users.file import changing
from mqcd.submit.users.lines import BadUsers
from mqcd.submit.users.passwords import make_user
from tests.unit.submit.support import Client, House, open_house, server, visit

ALICE = make_user("alice@example.net", "wonderland", plain=True)


def plain(password: str = "wonderland", user: str = ALICE.name) -> str:
    return "AUTH PLAIN " + b64encode(f"\0{user}\0{password}".encode()).decode()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    with changing(tmp_path / "users", Disk()) as found:
        found[ALICE.name] = ALICE
    return tmp_path / "users"


@asynccontextmanager
async def house_of(users: Path, **settings: Any) -> AsyncIterator[House]:
    house = House(server(users=users, authtypes_ssl=(), **settings))
    async with open_house(house):
        yield house
    house.door.logins.close()


async def log_in(client: Client) -> None:
    await client.say("EHLO client.example")
    assert (await client.say(plain())).startswith("235 ")


async def send(client: Client) -> None:
    for line in (f"MAIL FROM:<{ALICE.name}>", "RCPT TO:<any@elsewhere.example>", "DATA"):
        assert (await client.say(line))[0] in "23"
    assert (await client.send(b"X-Kind: news\r\n\r\nhello\r\n.\r\n")).startswith("250 ")


async def test_the_user_is_in_envelope_and_header(users: Path) -> None:
    async with house_of(users) as house, visit(house) as client:
        await log_in(client)
        await send(client)
        [recipient] = await house.queued()
        assert recipient.envelope.user == ALICE.name
        handle = await house.store.content(recipient)
        assert b"with ESMTPA id" in await handle.read(handle.size)
        handle.close()


async def test_a_zone_matches_by_user(users: Path) -> None:
    match = ZoneMatchSettings(user=(ALICE.name,), header=("X-Kind: news",))
    async with house_of(users) as house, visit(house) as client:
        house.door.assign([ZoneSettings(name="news", matches=(match,))])
        await log_in(client)
        await send(client)
        [recipient] = await house.queued()
        assert recipient.envelope.zone == "news"


async def test_a_wrong_password_is_counted_as_a_refusal(users: Path) -> None:
    async with house_of(users) as house, visit(house) as client:
        await client.say("EHLO client.example")
        assert (await client.say(plain("wrong"))).startswith("535 ")
        assert house.reasons() == ["auth"]


async def test_commands_behind_a_login_wait_for_it(users: Path) -> None:
    async with house_of(users) as house, visit(house) as client:
        client.writer.write(f"EHLO client\r\n{plain()}\r\nNOOP\r\nQUIT\r\n".encode())
        replies = [(await client.reply())[:3] for _ in range(4)]
        assert replies == ["250", "235", "250", "221"]


async def test_a_response_of_12288_octets_is_read_and_no_longer_one(users: Path) -> None:
    async with house_of(users, maxbadreqs=0) as house, visit(house) as client:
        await client.say("EHLO client.example")
        for octets, reply in ((12286, "501 "), (12287, "500 5.5.6 ")):
            assert (await client.say("AUTH PLAIN")).startswith("334 ")
            assert (await client.say("A" * octets)).startswith(reply)
        assert (await client.say(plain())).startswith("235 ")


async def test_a_changed_file_counts_at_once_on_request(users: Path) -> None:
    async with house_of(users) as house, visit(house) as client:
        with changing(users, Disk()) as found:
            found["bob"] = make_user("bob", "builder")
        house.door.look_at_files()
        await client.say("EHLO client.example")
        directory = house.door.logins.directory(users)
        while "bob" not in directory:
            await asyncio.sleep(0)
        assert (await client.say(plain("builder", "bob"))).startswith("235 ")


async def test_a_door_does_not_start_without_its_users(tmp_path: Path) -> None:
    house = House(server(users=tmp_path / "missing"))
    with pytest.raises(BadUsers):
        await house.door.start()


async def test_a_reload_with_a_broken_file_keeps_the_users(users: Path, tmp_path: Path) -> None:
    async with house_of(users) as house:
        house.door.reload(server(users=tmp_path / "missing", authtypes_ssl=()))
        async with visit(house) as client:
            await log_in(client)


async def test_a_client_that_leaves_while_it_is_checked_is_forgotten(users: Path) -> None:
    async with house_of(users) as house:
        async with visit(house) as client:
            client.writer.write(f"EHLO client\r\n{plain()}\r\n".encode())
            await client.reply()
        while house.door.sessions:
            await asyncio.sleep(0)


async def test_mail_goes_on_during_a_flood_of_logins(users: Path) -> None:
    async with house_of(users, relay_domains=("elsewhere.example",)) as house:

        async def guess(client: Client) -> str:
            await client.say("EHLO client.example")
            return await client.say(plain("guess", "nobody"))

        clients = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            clients.append(Client(reader, writer))
            await clients[-1].reply()
        guesses = [asyncio.ensure_future(guess(client)) for client in clients]
        async with visit(house) as other:
            await other.say("EHLO other.example")
            await send(other)
            # The queue for one client is shorter than this flood: some guesses are refused unchecked.
            assert sum(each.done() for each in guesses) < len(guesses)
        replies = sorted(await asyncio.gather(*guesses))
        assert {reply[:3] for reply in replies} <= {"535", "454", "421"}
        assert replies[0].startswith("4")
        await asyncio.gather(*(client.close() for client in clients))


class Watching:
    """Remembers what the session said of the login."""

    seen: list[tuple[bool | None, Any]] = []  # noqa: RUF012

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        self.seen.append((session.authenticated, session.auth_data))
        envelope.mail_from = address
        return "250 2.1.0 Ok"


async def test_hooks_see_the_user_and_no_password(users: Path) -> None:
    Watching.seen.clear()
    name = f"{Watching.__module__}:{Watching.__name__}"
    async with house_of(users, filter=name) as house, visit(house) as client:
        await log_in(client)
        await send(client)
    [(authenticated, data)] = Watching.seen
    assert authenticated is True
    assert (data.login, data.password) == (ALICE.name.encode(), b"")
