"""Traced sessions at a real door: whole dialogues, no contents, no passwords; others cost nothing."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from mqcd.core.smtp.tracing import Row, Trace, parse_trace
from mqcd.disk.durable import Disk
from mqcd.submit.users.file import changing
from mqcd.submit.users.passwords import make_user
from tests.unit.submit.support import Client, House, open_house, server, visit

PASSWORD = "wonderland"
ALICE = make_user("alice@example.net", PASSWORD, plain=True)
SECRET = b64encode(f"\0{ALICE.name}\0{PASSWORD}".encode()).decode()

CONTENT = b"Subject: private\r\n\r\nMAIL FROM:<in@content.example>\r\n.\r\n"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    with changing(tmp_path / "users", Disk()) as found:
        found[ALICE.name] = ALICE
    made = House(server(users=tmp_path / "users", authtypes_ssl=()))
    async with open_house(made):
        yield made
    made.door.logins.close()


def trace(house: House, sought: str) -> list[Row]:
    """The rows of a new trace."""
    rows: list[Row] = []
    house.door.traces.add(parse_trace(sought, rows.append))
    return rows


async def closed(client: Client) -> None:
    """Whole, as the server sees it."""
    await client.say("QUIT")
    assert await client.reply() == ""
    await asyncio.sleep(0)


def texts(rows: Sequence[Row]) -> list[object]:
    return [row.get("text", row["event"]) for row in rows]


async def test_a_session_is_seen_without_its_contents(house: House) -> None:
    rows = trace(house, "to@example.com")
    async with visit(house) as client:
        await client.begin()
        await client.send(CONTENT)
        await closed(client)
    seen = texts(rows)
    assert seen[0] == "opened"
    assert [each for each in seen if str(each).startswith(("MAIL", "RCPT", "DATA", "354"))] == [
        "MAIL FROM:<from@example.net>",
        "RCPT TO:<to@example.com>",
        "DATA",
        "354 End data with <CR><LF>.<CR><LF>",
    ]
    at = seen.index("content")
    assert str(seen[at + 1]).startswith("250 2.0.0 Ok: queued")
    assert rows[at]["octets"] == len(CONTENT)
    assert "private" not in str(rows)
    assert "in@content" not in str(rows)


async def test_passwords_are_not_seen(house: House) -> None:
    rows = trace(house, "127.0.0.0/8")
    async with visit(house) as client:
        await client.say("EHLO client")
        await client.say(f"AUTH PLAIN {SECRET[:-1]}x")
        await client.say("AUTH PLAIN")
        await client.say(SECRET)
        # Refused, and so are the lines that a client sends all the same.
        await client.say("AUTH LOGIN")
        await client.say(b64encode(PASSWORD.encode()).decode())
        await closed(client)
    said = [row["text"] for row in rows if row.get("who") == "client"]
    assert said[:4] == ["EHLO client", "AUTH PLAIN ***", "AUTH PLAIN", "***"]
    assert SECRET[5:-5] not in str(rows)
    assert b64encode(PASSWORD.encode()).decode()[:-3] not in str(rows)


async def test_a_login_tells_whose_session_it_is(house: House) -> None:
    rows = trace(house, ALICE.name)
    async with visit(house) as client:
        await client.say("EHLO client")
        await client.say(f"AUTH PLAIN {SECRET}")
        await closed(client)
    assert "AUTH PLAIN ***" in texts(rows)


async def test_sessions_of_others_are_not_seen(house: House) -> None:
    for sought in ("192.0.2.1", "other@example.com"):
        rows = trace(house, sought)
        async with visit(house) as client:
            await client.say("MAIL FROM:<to@example.com>")
            await closed(client)
        assert rows == [], sought


async def test_a_trace_that_has_ended_costs_nothing(house: House) -> None:
    trace_ = Trace("to@example.com", None, lambda _: None)
    house.door.traces.add(trace_)
    house.door.traces.remove(trace_)
    async with visit(house) as client:
        await client.say("EHLO client")
        [session] = house.door._sessions
        assert type(session).__name__ == "Session"
