"""Submissions with an idempotency key, as clients see them."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.unit.submit.support import LOOPBACK, Client, House, open_house, server, visit

LARGE = b"a" * 70 + b"\r\n"


def submission(**changes: object) -> House:
    return House(server(submission=True, relay_clients=(LOOPBACK,), **changes))


async def send(client: Client, key: str, *, lines: int = 1, to: str = "to@example.com") -> str:
    """The reply to a message under this key."""
    await client.begin(to)
    return await client.send(f"Subject: x\r\nX-mqcd-Key: {key}\r\n\r\n".encode() + LARGE * lines + b".\r\n")


def queue_id(reply: str) -> str:
    found = re.fullmatch(r"250 2\.0\.0 Ok: queued as ([0-9A-F]{16})\r\n", reply)
    assert found is not None, reply
    return found[1]


@pytest.mark.parametrize("lines", [1, 3000])
async def test_a_repeat_has_the_same_reply(lines: int) -> None:
    async with open_house(submission()) as house, visit(house) as client:
        first = queue_id(await send(client, "k1", lines=lines))
        assert queue_id(await send(client, "k1", lines=lines)) == first
        assert queue_id(await send(client, "k2", lines=lines)) != first
        assert [f"{each.spid:016X}" for each in await house.queued()].count(first) == 1
        assert len(await house.queued()) == 2


@pytest.mark.parametrize("lines", [1, 3000])
async def test_the_key_is_not_sent_on(lines: int) -> None:
    async with open_house(submission()) as house, visit(house) as client:
        queue_id(await send(client, "k1", lines=lines))
        [recipient] = await house.queued()
        content = await house.content(recipient)
        assert b"X-mqcd-Key" not in content
        assert content.endswith(b"Subject: x\r\n\r\n" + LARGE * lines)


async def test_uses_over_connections_at_once_are_one_message() -> None:
    async with open_house(submission()) as house:

        async def use() -> str:
            async with visit(house) as client:
                return queue_id(await send(client, "k1"))

        assert len(set(await asyncio.gather(*(use() for _ in range(8))))) == 1
        assert len(await house.queued()) == 1


@pytest.mark.parametrize(("lines", "to"), [(2, "to@example.com"), (1, "other@example.com")])
async def test_another_message_under_the_key_is_refused(lines: int, to: str) -> None:
    async with open_house(submission()) as house, visit(house) as client:
        queue_id(await send(client, "k1"))
        assert (await send(client, "k1", lines=lines, to=to)).startswith("554 5.5.4 ")
        assert len(await house.queued()) == 1


async def test_a_key_that_is_none_is_refused() -> None:
    async with open_house(submission()) as house, visit(house) as client:
        assert (await send(client, "two words")).startswith("554 5.6.0 ")
        assert house.reasons() == ["content"]
        assert await house.queued() == []


async def test_a_listener_that_only_relays_leaves_the_field_alone() -> None:
    async with open_house(House(server(relay_clients=(LOOPBACK,)))) as house, visit(house) as client:
        first = queue_id(await send(client, "k1"))
        assert queue_id(await send(client, "k1")) != first
        for recipient in await house.queued():
            assert b"X-mqcd-Key: k1\r\n" in await house.content(recipient)


async def test_chunks_have_keys_too() -> None:
    body = b"Subject: x\r\nX-mqcd-Key: k1\r\n\r\nbody\r\n"
    async with open_house(submission()) as house, visit(house) as client:
        spids = set()
        for _ in range(2):
            for line in ("EHLO client", "MAIL FROM:<from@example.net>", "RCPT TO:<to@example.com>"):
                assert (await client.say(line))[0] == "2"
            assert (await client.send(b"BDAT 20\r\n" + body[:20])).startswith("250")
            spids.add(queue_id(await client.send(b"BDAT %d LAST\r\n" % len(body[20:]) + body[20:])))
        assert len(spids) == 1
        assert len(await house.queued()) == 1


async def send_in_mail(client: Client, key: str, content: bytes = b"body\r\n") -> str:
    """The reply to a message whose key stands in MAIL, written as a parameter."""
    for line in (f"MAIL FROM:<from@example.net> X-MQCD-KEY={key}", "RCPT TO:<to@example.com>", "DATA"):
        assert (await client.say(line))[0] in "23"
    return await client.send(content + b".\r\n")


@pytest.mark.parametrize("lines", [1, 3000])
async def test_a_key_may_stand_in_mail(lines: int) -> None:
    async with open_house(submission()) as house, visit(house) as client:
        await client.say("EHLO client")
        first = queue_id(await send_in_mail(client, "a+3Db", LARGE * lines))
        assert queue_id(await send_in_mail(client, "a+3Db", LARGE * lines)) == first
        assert queue_id(await send_in_mail(client, "a+3Dc", LARGE * lines)) != first
        assert (await send_in_mail(client, "a+3Db", LARGE * (lines + 1))).startswith("554 5.5.4 ")
        for recipient in await house.queued():
            assert (await house.content(recipient)).endswith(LARGE * lines)
        assert len(await house.queued()) == 2


async def test_keys_of_mail_and_header_are_the_same() -> None:
    field = b"X-mqcd-Key: a=b\r\n\r\nbody\r\n"
    async with open_house(submission()) as house, visit(house) as client:
        await client.say("EHLO client")
        first = queue_id(await send_in_mail(client, "a+3Db", field))
        assert (await send_in_mail(client, "other", field)).startswith("554 5.6.0 ")
        # What names the message is the key alone, not where it stood.
        await client.begin()
        assert queue_id(await client.send(field + b".\r\n")) == first


@pytest.mark.parametrize(("lines", "content"), [(1, "59bbe52e"), (3000, "a9b6626c")])
@pytest.mark.parametrize(
    ("parameters", "notify", "envelope"),
    [("", "", "c90e6b97"), (" BODY=8BITMIME HOLDFOR=60 RET=HDRS MT-PRIORITY=2", " NOTIFY=NEVER", "5b0e69f1")],
)
async def test_names_and_digests_are_those_that_queues_hold(
    lines: int, content: str, parameters: str, notify: str, envelope: str
) -> None:
    async with open_house(submission()) as house, visit(house) as client:
        await client.say("EHLO client")
        for line in (
            f"MAIL FROM:<from@example.net>{parameters}",
            f"RCPT TO:<to@example.com>{notify}",
            "DATA",
        ):
            assert (await client.say(line))[0] in "23"
        queue_id(await client.send(b"Subject: x\r\nX-mqcd-Key: k1\r\n\r\n" + LARGE * lines + b".\r\n"))
        [(name, (used, _))] = house.store._live.keys._used.items()
        assert name.hex() == "b783af373c0d4f1c7ae506e5378b70c0"
        assert used.digest.hex() == envelope + content
