"""Every dialogue in `cases`, cut in three ways, and some of them over a real socket."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import AuthType, BareNewline, ListenerProtocol, PrioritySettings
from mqcd.disk.durable import Disk
from mqcd.submit import Door
from mqcd.submit.session.session import Session
from mqcd.submit.users.file import changing
from mqcd.submit.users.passwords import make_user
from tests.fakes.certificates import Authority
from tests.fakes.clock import turns
from tests.fakes.held import HOLDING, FakeHeld
from tests.unit.submit.dialogues.runner import Case, Client, octets, read
from tests.unit.submit.session.test_session import connect
from tests.unit.submit.support import Client as SocketClient
from tests.unit.submit.support import House, Transport, open_house, server, visit
from tests.unit.submit.test_door_tls import context_of, secure

ALL = sorted(Path(__file__).parent.joinpath("cases").glob("*.txt"))
SECURE = [path for path in ALL if "\n+ ssl=" in path.read_text()]
CASES = [path for path in ALL if path not in SECURE]
OVER_SOCKETS = ("5321-message", "2920-pipelined", "3030-chunks", "4954-plain", "5802-scram", "3461-envelope")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("mx", "DNS:mx.example.org")
    return made


@pytest.fixture(scope="session")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users"
    with changing(path, Disk()) as found:
        for name, password in (("alice@example.net", "wonderland"), ("bob", "builder")):
            found[name] = make_user(name, password, plain=True)
    return path


def house_of(case: Case, users: Path) -> House:
    settings: dict[str, Any] = dict(case.settings)
    settings.pop("ssl", None)
    if "authtypes" in settings:
        types = tuple(AuthType(each) for each in settings["authtypes"].split(","))
        settings |= {"users": users, "authtypes": types}
        settings.setdefault("authtypes_ssl", ())
    if settings.get("authtypes_ssl") == "all":
        settings["authtypes_ssl"] = tuple(AuthType)
    if "bare_newline" in settings:
        settings["bare_newline"] = BareNewline(settings["bare_newline"])
    settings["priorities"] = (PrioritySettings(user=("bob",), most=7),)
    protocol = ListenerProtocol(settings.pop("protocol", "smtp"))
    house = House(server(**settings))
    if protocol is not ListenerProtocol.SMTP:
        listener = replace(house.door.settings, protocol=protocol)
        house.door = Door(listener, house.store, house.clock, house.observer, inline_max=65536)
    house.door.hold(HOLDING, FakeHeld())
    if "users" in settings:
        house.door.logins.directory(users).load()
    return house


async def check_queue(case: Case, house: House) -> None:
    recipients = await house.queued()
    contents = [await house.content(each) for each in recipients if each.qid == 1]
    for kind, text in case.steps:
        assert kind != "Q:" or len(recipients) == int(text)
        assert kind != "M:" or octets(text) in contents


class Wireless:
    """A session without a socket."""

    def __init__(self, session: Session, transport: Transport) -> None:
        self._session = session
        self._transport = transport
        self._read = 0

    async def send(self, octets: bytes) -> None:
        if not self._transport.closed:
            self._session.data_received(octets)
        await turns(4)
        # A password is compared in a thread meanwhile.
        while not (self._transport.closed or self._session.deadlines.owing_since):
            await turns(1)

    async def reply(self) -> str:
        lines = self._transport.written[self._read :].decode().split("\r\n")[:-1]
        taken: list[str] = []
        for line in lines:
            self._read += len(line.encode()) + 2
            taken.append(line)
            if line[3:4] != "-":
                break
        return " ".join(taken)

    async def secure(self) -> None:
        raise TypeError("a dialogue with TLS needs a socket")

    async def closed(self) -> bool:
        return self._transport.closed


class Wired:
    """The same over a socket."""

    def __init__(self, client: SocketClient, context: ssl.SSLContext | None = None) -> None:
        self._client = client
        self._context = context or ssl.create_default_context()

    async def send(self, octets: bytes) -> None:
        self._client.writer.write(octets)
        await self._client.writer.drain()

    async def reply(self) -> str:
        return " ".join((await self._client.reply()).splitlines())

    async def secure(self) -> None:
        await self._client.writer.start_tls(self._context, server_hostname="mx.example.org")

    async def closed(self) -> bool:
        return await self._client.reader.read() == b""


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_dialogue(path: Path, users: Path) -> None:
    async def talk(mode: str) -> None:
        house = house_of(case, users)
        await house.store.open()
        session, transport = connect(house)
        await Client(Wireless(session, transport)).run(case, mode)
        await check_queue(case, house)
        house.door.logins.close()

    case = read(path)
    for mode in ("lines", "octets", "joined"):
        asyncio.run(talk(mode))


@pytest.mark.parametrize("name", OVER_SOCKETS)
async def test_a_dialogue_over_a_socket(name: str, users: Path) -> None:
    [path] = [path for path in CASES if path.stem == name]
    case = read(path)
    async with open_house(house_of(case, users)) as house, visit(house) as client:
        await Client(Wired(client)).run(case, "joined")
        await check_queue(case, house)
        house.door.logins.close()


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("path", SECURE, ids=[path.stem for path in SECURE])
async def test_a_dialogue_with_tls(path: Path, users: Path, authority: Authority) -> None:
    case = read(path)
    changes = {"mandatory": True} if case.settings["ssl"] == "mandatory" else {}
    for mode in ("lines", "octets", "joined"):
        # Octets behind STARTTLS are found only if they come with it.
        if mode == "octets" and path.stem == "3207-injection":
            continue
        house = secure(house_of(case, users), authority, **changes)
        async with open_house(house), visit(house) as client:
            await Client(Wired(client, context_of(authority))).run(case, mode)
            await check_queue(case, house)
            house.door.logins.close()
