"""What a real door refuses and delays by its settings, and by those of a client's network."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcd.config.settings import NetworkSettings, ServerNetworkSettings
from mqcd.submit import Door
from mqcd.submit.checks.listed import BadList
from tests.fakes.clock import FakeClock, turns
from tests.fakes.resolver import FakeResolver
from tests.unit.submit.support import LOOPBACK, Client, House, open_house, server, visit


def network(*ips: str, **settings: Any) -> NetworkSettings:
    made: Any = ServerNetworkSettings
    result: NetworkSettings = made(ip=tuple(map(ipaddress.ip_network, ips)), **settings)
    return result


async def first_words(house: House) -> str:
    """What a new client reads first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
    client = Client(reader, writer)
    said = await client.reply()
    await client.close()
    return said


async def test_a_network_has_limits_of_its_own() -> None:
    nets = (network("127.0.0.0/8", maxrecips=1, ext_size=False), network("10.0.0.0/8", maxrecips=9))
    async with open_house(House(server(maxrecips=5, remotenets=nets))) as house, visit(house) as client:
        assert "SIZE" not in await client.say("EHLO client")
        await client.say("MAIL FROM:<>")
        assert (await client.say("RCPT TO:<a@example.com>")).startswith("250 ")
        assert (await client.say("RCPT TO:<b@example.com>")).startswith("452 ")


async def test_a_network_whose_name_had_no_answer_is_looked_up_again_soon() -> None:
    clock, names = FakeClock(), FakeResolver(failing=["partner.example.org"])
    partner: Any = ServerNetworkSettings
    house = House(server(remotenets=(partner(ip=("partner.example.org",), ext_size=False),)), clock=clock)
    house.door = Door(
        house.door.settings, house.store, clock, house.observer, inline_max=65536, resolver=names
    )
    async with open_house(house):
        async with visit(house) as client:
            assert "SIZE" in await client.say("EHLO client")
        names.failing.clear()
        names.address_records["partner.example.org"] = ["127.0.0.1"]
        await clock.run_for(30_000)
        async with visit(house) as client:
            assert "SIZE" not in await client.say("EHLO client")


async def test_a_network_has_a_filter_of_its_own() -> None:
    nets = (network("127.0.0.0/8", filter="tests.fakes.handlers:Discarding"),)
    async with open_house(House(server(remotenets=nets))) as house, visit(house) as client:
        await client.begin()
        assert await client.send(b"a\r\n.\r\n") == "250 thanks\r\n"
        assert await house.queued() == []


async def test_content_goes_by_the_limits_of_the_network() -> None:
    nets = (network("127.0.0.0/8", maxmsgsize=10, omitreceivedheader=True),)
    async with open_house(House(server(remotenets=nets))) as house, visit(house) as client:
        await client.begin()
        assert (await client.send(b"12345678901234567890\r\n.\r\n")).startswith("552 ")
        for line in ("MAIL FROM:<>", "RCPT TO:<a@example.com>", "DATA"):
            await client.say(line)
        assert (await client.send(b"1234\r\n.\r\n")).startswith("250 ")
        [recipient] = await house.queued()
        handle = await house.store.content(recipient)
        assert await handle.read(100) == b"1234\r\n"
        handle.close()


async def test_a_listed_client_is_turned_away_even_if_it_may_relay(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("127.0.0.1\n")
    ours = House(server(blacklist=tmp_path / "list", relay_clients=(LOOPBACK,)))
    async with open_house(ours):
        assert (await first_words(ours)).startswith("554 5.7.1 ")
        assert ours.reasons() == ["blacklist"]


async def test_a_network_need_not_go_by_the_blacklist(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("127.0.0.1\n")
    nets = (network("127.0.0.0/8", blacklist_enabled=False),)
    ours = House(server(blacklist=tmp_path / "list", remotenets=nets))
    async with open_house(ours):
        assert (await first_words(ours)).startswith("220 ")


async def until(house: House, words: str) -> None:
    """Wait until new clients read these words first; the door looks at its files meanwhile."""
    while not (await first_words(house)).startswith(words):
        house.door.look_at_files()


async def test_a_changed_blacklist_is_read_and_a_wrong_one_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = tmp_path / "list"
    listed.write_text("192.0.2.1\n")
    ours = House(server(blacklist=listed))
    async with open_house(ours):
        assert (await first_words(ours)).startswith("220 ")
        listed.write_text("192.0.2.1\n127.0.0.0/8\n")
        await until(ours, "554 ")
        listed.write_text("192.0.2.1\nno entry\n")
        while "the old blacklist stays" not in caplog.text:
            ours.door.look_at_files()
            await asyncio.sleep(0)
        assert f"{listed}:2: " in caplog.text
        assert (await first_words(ours)).startswith("554 ")
        listed.write_text("")
        await until(ours, "220 ")


async def test_a_door_does_not_open_with_a_wrong_blacklist(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("no entry\n")
    ours = House(server(blacklist=tmp_path / "list"))
    await ours.store.open()
    with pytest.raises(BadList):
        await ours.door.start()
    await ours.door.stop()


async def test_a_blacklist_that_is_switched_off_need_not_be_there(tmp_path: Path) -> None:
    off = server(blacklist=tmp_path / "list", blacklist_enabled=False)
    async with open_house(House(off)) as house:
        assert (await first_words(house)).startswith("220 ")
        house.door.reload(server(blacklist=tmp_path / "other", blacklist_enabled=False))
        assert house.door.settings.server.blacklist == tmp_path / "other"
        (tmp_path / "list").write_text("127.0.0.1\n")
        house.door.reload(server(blacklist=tmp_path / "list"))
        assert (await first_words(house)).startswith("554 ")


async def test_a_blacklist_that_was_switched_off_is_not_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed, clock = tmp_path / "list", FakeClock()
    listed.write_text("192.0.2.1\n")
    (tmp_path / "other").write_text("192.0.2.1\n")
    nets = (network("10.0.0.0/8", blacklist=tmp_path / "other", blacklist_enabled=True),)
    on = server(blacklist=listed, remotenets=nets)
    async with open_house(House(on, clock=clock)) as house:
        house.door.reload(replace(on, blacklist_enabled=False))
        listed.unlink()
        (tmp_path / "other").unlink()
        while "the old blacklist stays" not in caplog.text:
            await clock.run_for(2000)
        assert str(listed) not in caplog.text


async def test_a_door_that_takes_no_mail_needs_no_files(tmp_path: Path) -> None:
    ours = House(server(blacklist=tmp_path / "list", users=tmp_path / "users", relay_clients=(LOOPBACK,)))
    ours.door.adopt([])
    await ours.door.start(takes=False)
    assert ours.door.trusts("127.0.0.1")
    await ours.door.stop()


async def said_after(client: Client, clock: FakeClock, line: str, ms: int) -> str:
    """The reply to a line, which must not come before `ms` have gone by."""
    client.writer.write(line.encode() + b"\r\n")
    reply = asyncio.ensure_future(client.reply())
    while not any(wake == ms for wake in (clock.next_wake(),)):
        await asyncio.sleep(0)
    await turns()
    assert not reply.done()
    clock.advance(ms)
    return await reply


async def test_refusals_are_delayed() -> None:
    clock = FakeClock()
    ours = House(server(delay_badrecip=300, delay_badreq=200), clock=clock)
    async with open_house(ours), visit(ours) as client:
        await client.say("EHLO client")
        assert (await said_after(client, clock, "NONSENSE", 200)).startswith("500 ")
        await client.say("MAIL FROM:<>")
        assert (await client.say("RCPT TO:<a@example.com>")).startswith("250 ")
        assert (await said_after(client, clock, "RCPT TO:<a@elsewhere.example>", 300)).startswith("554 ")
        assert (await client.say("RCPT TO:<b@example.com>")).startswith("250 ")


async def test_commands_behind_a_delayed_reply_wait_in_their_order() -> None:
    clock = FakeClock()
    ours = House(server(delay_badreq=200), clock=clock)
    async with open_house(ours), visit(ours) as client:
        assert (await said_after(client, clock, "NONSENSE\r\nNOOP\r\nQUIT", 200)).startswith("500 ")
        assert (await client.reply()).startswith("250 ")
        assert (await client.reply()).startswith("221 ")


async def test_the_greeting_is_delayed_and_a_stop_does_not_wait_for_it() -> None:
    clock = FakeClock()
    ours = House(server(delay_greet=50_000), clock=clock)
    async with open_house(ours):
        reader, writer = await asyncio.open_connection("127.0.0.1", ours.door.port)
        client = Client(reader, writer)
        while not ours.door.sessions:
            await asyncio.sleep(0)
        await turns()
        await ours.door.stop()
        assert [(await client.reply())[:3] for _ in range(2)] == ["220", "421"]
        await client.close()


async def test_a_client_that_leaves_ends_its_delay() -> None:
    clock = FakeClock()
    ours = House(server(delay_greet=50_000), clock=clock)
    async with open_house(ours):
        _, writer = await asyncio.open_connection("127.0.0.1", ours.door.port)
        while not ours.door.sessions:
            await asyncio.sleep(0)
        writer.close()
        while ours.door.sessions:
            await asyncio.sleep(0)
