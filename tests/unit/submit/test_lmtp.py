"""LMTP at a door: LHLO, and a reply for each recipient behind the final dot (RFC 2033)."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from aiosmtpd.lmtp import LMTP

from mqcd.config.settings import ListenerProtocol, ListenerSettings, ListenerSslSettings
from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient, Submission
from mqcd.submit import Door
from mqcd.submit.policy.relay import relay_policy
from mqcd.submit.policy.rules import Gate, Rules
from mqcd.submit.session.dialogue import Dialogue
from tests.fakes.clock import FakeClock
from tests.fakes.handlers import Recording, Scripted
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.submit.session.test_filtering import handler_of
from tests.unit.submit.support import Client, House, open_house, server, visit

MAIL = "MAIL FROM:<from@example.net>"


@asynccontextmanager
async def client_of(house: House) -> AsyncIterator[Client]:
    settings = ListenerSettings(
        name="test", port=0, protocol=ListenerProtocol.LMTP, server=house.door.settings.server
    )
    house.door = Door(settings, house.store, house.clock, house.observer, inline_max=65536)
    async with open_house(house), visit(house) as client:
        yield client


async def to_three(client: Client, content: bytes) -> list[str]:
    """The replies to a message that two of three recipients are accepted for."""
    for line in ("LHLO client.example", MAIL, "RCPT TO:<a@example.com>"):
        assert (await client.say(line)).startswith("250")
    assert (await client.say("RCPT TO:<b@elsewhere.example>")).startswith("554 ")
    assert (await client.say("RCPT TO:<c@example.com>")).startswith("250 ")
    assert (await client.say("DATA")).startswith("354 ")
    replies = [await client.send(content), await client.reply()]
    assert await client.say("NOOP") == "250 2.0.0 Ok\r\n"
    return replies


async def test_each_accepted_recipient_has_a_reply() -> None:
    house = House(server())
    async with client_of(house) as client:
        first, second = await to_three(client, b"hello\r\n.\r\n")
        assert first == second
        assert first.startswith("250 2.0.0 ")
        queued = await house.queued()
        assert sorted(each.address for each in queued) == ["a@example.com", "c@example.com"]
        handle = await house.store.content(queued[0])
        assert b" with LMTP id " in await handle.read(handle.size)
        handle.close()


async def test_a_refused_message_is_refused_for_each() -> None:
    house = House(server(maxmsgsize=10))
    async with client_of(house) as client:
        replies = await to_three(client, b"more than ten octets\r\n.\r\n")
        assert [reply[:9] for reply in replies] == ["552 5.3.4"] * 2
        assert await house.queued() == []


async def test_a_filter_sees_lhlo_as_aiosmtpd_shows_it() -> None:
    lines = ("LHLO client.example", MAIL)
    expected = Recording()
    theirs = await asyncio.get_running_loop().create_server(
        lambda: LMTP(expected, hostname="mx.example.org", enable_SMTPUTF8=True), "127.0.0.1", 0
    )
    client = Client(*await asyncio.open_connection("127.0.0.1", theirs.sockets[0].getsockname()[1]))
    await client.reply()
    for line in lines:
        assert (await client.say(line)).startswith("250")
    await client.close()
    theirs.close()
    house = House(server(filter="tests.fakes.handlers:Recording"))
    async with client_of(house) as client:
        for line in lines:
            assert (await client.say(line)).startswith("250")
        assert handler_of(house).calls == expected.calls


async def test_a_recipient_that_a_filter_adds_has_no_reply() -> None:
    def expand(server: Any, session: Any, envelope: Any, address: str) -> str:
        envelope.rcpt_tos += [address, "archive@example.com"]
        return "250 2.1.5 Ok"

    house = House(server(filter="tests.fakes.handlers:ScriptedWhole"))
    async with client_of(house) as client:
        cast("Scripted", handler_of(house)).acts["RCPT"] = expand
        first, second = await to_three(client, b"hello\r\n.\r\n")
        assert first == second
        assert len(await house.queued()) == 4


class Full(MemoryStore):
    """A store that takes nothing."""

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        raise StoreUnavailable("full")


async def test_what_is_not_durable_is_accepted_for_nobody() -> None:
    clock, observer = FakeClock(), RecordingObserver()
    async with client_of(House(server(), store=Full(clock, observer), clock=clock)) as client:
        replies = await to_three(client, b"hello\r\n.\r\n")
        assert [reply[:9] for reply in replies] == ["451 4.3.1"] * 2


async def test_pythons_client_delivers() -> None:
    house = House(server())
    async with client_of(house):
        await asyncio.to_thread(by_smtplib, house.door.port)
        assert len(await house.queued()) == 1


def by_smtplib(port: int) -> None:
    with smtplib.LMTP("127.0.0.1", port, local_hostname="client.example") as client:
        assert client.sendmail("from@example.net", ["to@example.com"], b"hello\r\n") == {}


def desk(**changes: Any) -> Dialogue:
    made = server()
    return Dialogue(
        Rules(made, relay_policy(made, {}), Gate(), lmtp=True, **changes), "test", "192.0.2.1", lambda _: None
    )


@pytest.mark.parametrize(
    ("lines", "reply"),
    [
        (["EHLO client.example"], "500 5.5.1"),
        (["HELO client.example"], "500 5.5.1"),
        (["LHLO"], "501 5.5.4"),
        ([MAIL], "503 5.5.1"),
        (["LHLO client.example", MAIL, "DATA"], "554 5.5.1"),
        (["LHLO client.example", MAIL, "BDAT 0 LAST"], "500 5.5.1"),
    ],
)
def test_replies(lines: list[str], reply: str) -> None:
    said = b""
    dialogue = desk()
    for line in lines:
        said = dialogue.command(line.encode())
    assert said.decode().startswith(reply)


def test_lhlo_lists_extensions_without_chunking() -> None:
    listed = desk().command(b"LHLO client.example").decode()
    assert "PIPELINING" in listed
    assert "ENHANCEDSTATUSCODES" in listed
    assert "CHUNKING" not in listed


def test_mandatory_tls_leaves_lhlo() -> None:
    ssl = ListenerSslSettings(latent=True, mandatory=True, certfile=(Path("cert"),))
    dialogue = desk(ssl=ssl)
    assert dialogue.command(b"LHLO client.example").startswith(b"250")
    assert dialogue.command(MAIL.encode()).startswith(b"530 5.7.0 ")
    assert desk(ssl=replace(ssl, mandatory=False)).command(b"EHLO client.example").startswith(b"500 ")
