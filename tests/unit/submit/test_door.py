"""A real listener on a free port, the memory store behind it, and clients of several kinds."""

from __future__ import annotations

import asyncio
import smtplib
import socket
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from mqcd.config.settings import BareNewline, ServerSettings
from mqcd.core.errors import ConnectFailed, NameNotFound, ResolveFailed, StoreUnavailable
from mqcd.core.model import Recipient, Submission
from mqcd.core.ports import MxHost
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.submit import Door
from mqcd.submit.policy.capacity import Capacity
from mqcd.submit.session.connections import client_address
from mqcd.submit.session.stream import STEP
from mqcd.submit.session.wire import HIGH_WATER
from tests.fakes.clock import FakeClock, turns
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.submit.support import LOOPBACK, Client, House, open_house, server, until_gone, visit

LOOP_READ = 256 * 1024
"""Octets that an event loop delivers at once, at most."""


class Store(MemoryStore):
    """A memory store that can fail, wait, and look at content without keeping it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(self.clock, RecordingObserver())
        self.error: Exception | None = None
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.raised: list[BaseException] = []

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Wait for `go`, fail with `error`, or take it."""
        self.entered.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        try:
            return await super().enqueue(submission)
        except BaseException as error:
            self.raised.append(error)
            raise


class DigestStore(Store):
    """Keeps the digest of content that comes in chunks, reads slowly, and watches the door."""

    door: Door
    most_held = 0
    largest = 0
    digest = ""

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Read the content turn by turn; keep what it was."""
        assert not isinstance(submission.content, bytes)
        digest = sha256()
        header = True
        async for chunk in submission.content:
            self.largest = max(self.largest, len(chunk))
            digest.update(chunk.partition(b" +0000\r\n")[2] if header else chunk)
            header = False
            await turns(3)
            self.most_held = max(self.most_held, self.door.held)
        self.digest = digest.hexdigest()
        return await super().enqueue(replace(submission, content=b""))


async def test_smtplib_end_to_end() -> None:
    house = House(server())

    def send(port: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example") as client:
            client.sendmail("from@example.net", "to@example.com", b"Subject: one\r\n\r\n.dot\r\n")
            client.sendmail(
                "", ["a@example.com", "b@example.com"], b"Subject: two\r\n\r\n\xe4\r\n", ["BODY=8BITMIME"]
            )

    async with open_house(house):
        await asyncio.to_thread(send, house.door.port)
        one, two, three = sorted(await house.queued(), key=lambda recipient: recipient.key)
        assert (one.address, two.address, three.address) == (
            "to@example.com",
            "a@example.com",
            "b@example.com",
        )
        assert (one.envelope.sender, two.envelope.sender) == ("from@example.net", "")
        assert (one.envelope.listener, one.envelope.client) == ("test", "127.0.0.1")
        assert two.envelope is three.envelope
        assert await house.content(one) == b"Subject: one\r\n\r\n.dot\r\n"
        assert await house.content(two) == b"Subject: two\r\n\r\n\xe4\r\n"


async def test_the_received_header_and_the_reply_name_the_spid() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        await client.begin()
        reply = await client.send(b"a\r\n.\r\n")
        (recipient,) = await house.queued()
        spid = format_spid(recipient.spid)
        assert reply == f"250 2.0.0 Ok: queued as {spid}\r\n"
        content = await house.store.content(recipient)
        assert await content.read(1000) == (
            b"Received: from client ([127.0.0.1])\r\n"
            b"\tby mx.example.org (mqcd) with ESMTP id " + spid.encode() + b"\r\n"
            b"\tfor <to@example.com>; Fri, 15 Jan 2027 08:00:00 +0000\r\na\r\n"
        )


async def test_no_received_header_where_it_is_unwanted() -> None:
    house = House(server(omitreceivedheader=True))
    async with open_house(house), visit(house) as client:
        await client.begin()
        await client.send(b"a\r\n.\r\n")
        (recipient,) = await house.queued()
        assert recipient.size == 3


@pytest.mark.parametrize(
    ("wire", "content"),
    [
        (b".\r\n", b""),
        (b"no newline\r\n.\r\n", b"no newline\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"\1\xff\r\n.\r\n", b"\1\xff\r\n"),
    ],
)
@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_odd_contents(wire: bytes, content: bytes, inline_max: int) -> None:
    house = House(server(), inline_max=inline_max)
    async with open_house(house), visit(house) as client:
        await client.begin()
        assert (await client.send(wire)).startswith("250 ")
        assert await house.content((await house.queued())[0]) == content


async def test_smtputf8() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        await client.say("EHLO c")
        assert (await client.say("MAIL FROM:<ä@bücher.example> SMTPUTF8")).startswith("250 ")
        assert (await client.say("RCPT TO:<ö@example.com>")).startswith("250 ")
        await client.say("DATA")
        await client.send("Subject: ü\r\n.\r\n".encode())
        (recipient,) = await house.queued()
        assert recipient.envelope.smtputf8
        assert (recipient.envelope.sender, recipient.address) == ("ä@bücher.example", "ö@example.com")
        content = await house.store.content(recipient)
        assert b"with UTF8SMTP id" in await content.read(500)


async def test_pipelining_across_messages() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        group = (
            b"MAIL FROM:<a@example.net>\r\nRCPT TO:<b@example.com>\r\nRCPT TO:<c@evil.example>\r\nDATA\r\n"
        )
        client.writer.write(b"EHLO c\r\n" + group)
        codes = [(await client.reply())[:3] for _ in range(5)]
        assert codes == ["250", "250", "250", "554", "354"]
        client.writer.write(b"one\r\n.\r\n" + group)
        codes = [(await client.reply())[:3] for _ in range(5)]
        assert codes == ["250", "250", "250", "554", "354"]
        client.writer.write(b"two\r\n.\r\nQUIT\r\n")
        assert [(await client.reply())[:3] for _ in range(3)] == ["250", "221", ""]
        assert len(await house.queued()) == 2


async def test_many_commands_at_once_are_all_answered() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        client.writer.write(b"NOOP\r\n" * 5000)
        for _ in range(5000):
            assert await client.reply() == "250 2.0.0 Ok\r\n"


@pytest.mark.parametrize(
    "attack",
    [
        b"a\n.\nMAIL FROM:<evil@example.net>\nRCPT TO:<x@example.com>\nDATA\nb\n.\n",
        b"a\r\n.\rMAIL FROM:<evil@example.net>\r\nRCPT TO:<x@example.com>\r\nDATA\r\nb\r\n.\r",
        b"a\n.\r\nMAIL FROM:<evil@example.net>\r\nRCPT TO:<x@example.com>\r\nDATA\r\nb\r\n.\n",
        b"a\r.\rMAIL FROM:<evil@example.net>\r\n",
    ],
)
@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_smuggling_is_refused_and_the_session_stays_in_step(attack: bytes, inline_max: int) -> None:
    house = House(server(bare_newline=BareNewline.REJECT), inline_max=inline_max)
    async with open_house(house), visit(house) as client:
        await client.begin()
        assert (await client.send(attack + b"\r\n.\r\n")).startswith("554 5.6.0 ")
        assert (await client.say("NOOP")).startswith("250 ")
        assert await house.queued() == []
        assert house.reasons() == ["content"]


@pytest.mark.parametrize("inline_max", [65536, 0])
@pytest.mark.parametrize("end", [b"\n.\n", b"\n.\r\n", b"\r\n.\n"])
async def test_what_looks_like_an_end_stays_in_its_message(end: bytes, inline_max: int) -> None:
    house = House(server(), inline_max=inline_max)
    async with open_house(house), visit(house) as client:
        await client.begin()
        assert (await client.send(b"a" + end + b"MAIL FROM:<x@y.example>\n.\r\n\r\n.\r\n"))[:3] == "250"
        assert (await client.say("NOOP")).startswith("250 ")
        [recipient] = await house.queued()
        assert await house.content(recipient) == b"a\r\n\r\nMAIL FROM:<x@y.example>\r\n\r\n\r\n"


async def test_a_session_with_bare_newlines_is_a_session() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        for line in (b"EHLO c\n", b"MAIL FROM:<>\n", b"RCPT TO:<b@example.com>\n", b"DATA\n"):
            client.writer.write(line)
            assert (await client.reply())[0] in "23"
        assert (await client.send(b"Subject: a\n\nb\n\r\n.\r\n")).startswith("250 ")
        [recipient] = await house.queued()
        assert await house.content(recipient) == b"Subject: a\r\n\r\nb\r\n\r\n"


async def test_content_ahead_of_354_ends_the_session() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        await client.say("EHLO c")
        await client.say("MAIL FROM:<>")
        await client.say("RCPT TO:<a@example.com>")
        client.writer.write(b"DATA\r\nSubject: too early\r\n.\r\n")
        assert (await client.reply()).startswith("421 4.5.0 ")
        assert await client.reply() == ""
        assert await house.queued() == []
        assert house.reasons() == ["sequence"]


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_too_large(inline_max: int) -> None:
    house = House(server(maxmsgsize=1000), inline_max=inline_max)
    async with open_house(house), visit(house) as client:
        await client.begin()
        assert (await client.send((b"x" * 98 + b"\r\n") * 10 + b".\r\n")).startswith("250 ")
        await client.begin()
        assert (await client.send((b"x" * 98 + b"\r\n") * 10 + b"\r\n.\r\n")).startswith("552 5.3.4 ")
        await client.begin()
        assert (await client.send((b"x" * 98 + b"\r\n") * 9000 + b"\r\n.\r\n")).startswith("552 5.3.4 ")
        assert len(await house.queued()) == 1


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_loop_ends(inline_max: int) -> None:
    house = House(server(maxhops=3), inline_max=inline_max)
    async with open_house(house), visit(house) as client:
        await client.begin()
        assert (await client.send(b"Received: x\r\n" * 2 + b"\r\nReceived: body\r\n.\r\n")).startswith("250 ")
        await client.begin()
        assert (await client.send(b"Received: x\r\n" * 3 + b"\r\n.\r\n")).startswith("554 5.4.6 ")
        assert house.reasons() == ["loop"]


async def test_thirty_megabytes_flow_through_little_memory() -> None:
    store = DigestStore()
    house = House(server(), store=store)
    store.door = house.door
    content = (b"." * 3 + b"y" * 75 + b"\r\n") * 393_216
    async with open_house(house), visit(house) as client:
        await client.begin()
        client.writer.write(content.replace(b"\r\n.", b"\r\n..").replace(b".", b"..", 1) + b".\r\n")
        assert (await client.reply()).startswith("250 ")
        assert store.digest == sha256(content).hexdigest()
        assert 0 < store.most_held <= HIGH_WATER + LOOP_READ
        assert store.largest <= STEP + HIGH_WATER + LOOP_READ + 1000


@pytest.mark.parametrize("content", [b"small", (b"x" * 98 + b"\r\n") * 3000])
async def test_a_client_that_leaves_in_mid_data_leaves_nothing(content: bytes) -> None:
    store = Store()
    house = House(server(), store=store)
    async with open_house(house):
        async with visit(house) as client:
            await client.begin()
            client.writer.write(content)
            await client.writer.drain()
            if len(content) > 65536:
                await store.entered.wait()
        await until_gone(house)
        assert await house.queued() == []
        assert [type(error) for error in store.raised] == ([ConnectFailed] if len(content) > 65536 else [])


async def test_a_client_leaving_during_the_commit_changes_nothing() -> None:
    store = Store()
    house = House(server(), store=store)
    store.go.clear()
    async with open_house(house):
        async with visit(house) as client:
            await client.begin()
            client.writer.write(b"a\r\n.\r\n")
            await store.entered.wait()
            client.writer.transport.abort()
        store.go.set()
        await until_gone(house)
        assert len(await house.queued()) == 1


async def test_a_client_that_only_closes_its_side_gets_its_answers() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        client.writer.write_eof()
        assert (await client.reply()).startswith("250 ")
        assert await client.reply() == ""
        assert len(await house.queued()) == 1


@pytest.mark.parametrize(
    ("error", "reply", "reason"),
    [
        (StoreUnavailable("disk full"), "451 4.3.1 ", "store"),
        (Refused(Reply(code=452, status="4.3.4", text="Frame too large")), "452 4.3.4 ", "store"),
        (RuntimeError("a fault"), "451 4.3.0 ", "fault"),
    ],
)
@pytest.mark.parametrize("size", [1, 3000])
async def test_a_store_that_fails(error: Exception, reply: str, reason: str, size: int) -> None:
    store = Store()
    house = House(server(), store=store)
    async with open_house(house), visit(house) as client:
        store.error = error
        await client.begin()
        assert (await client.send((b"x" * 98 + b"\r\n") * size + b".\r\n")).startswith(reply)
        store.error = None
        await client.begin()
        assert (await client.send(b"a\r\n.\r\n")).startswith("250 ")
        assert house.reasons() == [reason]


async def test_the_door_can_be_closed_and_opened() -> None:
    house = House(server())
    async with open_house(house), visit(house) as client:
        await client.say("EHLO c")
        house.door.close_door(Reply(code=452, status="4.3.1", text="Disk full"))
        assert await client.say("MAIL FROM:<>") == "452 4.3.1 Disk full\r\n"
        house.door.open_door()
        assert (await client.say("MAIL FROM:<>")).startswith("250 ")
        with pytest.raises(ValueError, match="4yz"):
            house.door.close_door(Reply(code=554))


async def test_bad_lines() -> None:
    house = House(server(maxbadreqs=3, bare_newline=BareNewline.REJECT))
    async with open_house(house), visit(house) as client:
        client.writer.write(b"NOOP\n")
        assert (await client.reply()).startswith("500 5.5.2 ")
        client.writer.write(b"NOOP " + b"x" * 100_000 + b"\r\n")
        assert (await client.reply()).startswith("500 5.5.2 ")
        assert (await client.say("NOOP \0")).startswith("500 5.5.2 ")
        assert (await client.say("FOO")).startswith("421 4.7.0 ")
        assert await client.reply() == ""


async def test_connections_from_one_address_are_limited() -> None:
    house = House(server(maxpeerconnections=1))
    async with open_house(house):
        async with visit(house):
            assert (await turned_away(house)).startswith("421 4.7.0 ")
        await until_gone(house)
        async with visit(house) as third:
            assert (await third.say("NOOP")).startswith("250 ")
    assert house.reasons() == ["connections"]


async def test_relay_clients_connect_as_often_as_they_like() -> None:
    house = House(server(maxpeerconnections=1, relay_clients=(LOOPBACK,)))
    async with open_house(house), visit(house), visit(house) as second:
        assert (await second.say("NOOP")).startswith("250 ")


async def test_beyond_the_capacity_clients_get_421() -> None:
    house = House(server(), capacity=Capacity(2))
    async with open_house(house):
        async with visit(house), visit(house):
            assert (await turned_away(house)).startswith("421 4.3.2 ")
        await until_gone(house)
        async with visit(house) as third:
            assert (await third.say("NOOP")).startswith("250 ")
    assert house.reasons() == ["connections"]


async def test_a_part_of_the_capacity_is_for_relay_clients() -> None:
    capacity = Capacity(2, kept=1)
    strangers = House(server(), capacity=capacity)
    ours = House(server(relay_clients=(LOOPBACK,)), capacity=capacity)
    async with open_house(strangers), open_house(ours), visit(strangers):
        assert (await turned_away(strangers)).startswith("421 4.3.2 ")
        async with visit(ours) as trusted:
            assert (await trusted.say("NOOP")).startswith("250 ")
            assert (await turned_away(ours)).startswith("421 4.3.2 ")
    assert capacity.taken == 0


async def test_octets_that_drip_hold_no_message_for_ever() -> None:
    clock = FakeClock()
    house = House(server(timeout=120_000), clock=clock)
    async with open_house(house), visit(house) as client:
        await client.begin()
        passed = 0
        while house.door.sessions and passed < 700_000:
            client.writer.write(b"a")
            await came(house)
            await clock.run_for(10_000)
            passed += 10_000
        assert 590_000 <= passed <= 620_000
        assert (await client.reply()).startswith("421 4.4.2 ")
    assert house.reasons() == ["timeout"]


async def test_noops_hold_no_session_for_ever() -> None:
    clock = FakeClock()
    house = House(server(timeout=120_000), clock=clock)
    async with open_house(house), visit(house) as client:
        for _ in range(36):
            assert (await client.say("NOOP")).startswith("250 ")
            await clock.run_for(99_000)
        assert house.door.sessions == 1
        await clock.run_for(40_000)
        assert (await client.reply()).startswith("421 4.4.2 ")
        assert await client.reply() == ""


async def test_an_old_session_ends_behind_its_message() -> None:
    clock = FakeClock()
    house = House(server(timeout=0), clock=clock)
    async with open_house(house), visit(house) as client:
        await clock.run_for(3_590_000)
        await client.begin()
        client.writer.write(b"a\r\n")
        await came(house)
        await clock.run_for(60_000)
        assert (await client.send(b".\r\n")).startswith("250 ")
        assert (await client.reply()).startswith("421 4.4.2 ")
        assert await client.reply() == ""


@pytest.mark.parametrize("lines", [["EHLO c"], ["EHLO c", "MAIL FROM:<>", "RCPT TO:<a@example.com>", "DATA"]])
async def test_a_silent_client_is_cut_off(lines: list[str]) -> None:
    clock = FakeClock()
    house = House(server(timeout=60_000), clock=clock)
    async with open_house(house), visit(house) as client:
        for line in lines:
            await client.say(line)
        await clock.run_for(59_000)
        assert house.door.sessions == 1
        await clock.run_for(2_000)
        assert (await client.reply()).startswith("421 4.4.2 ")
        assert await client.reply() == ""
        assert house.reasons() == ["timeout"]


async def test_a_slow_commit_is_not_the_clients_silence() -> None:
    store = Store()
    house = House(server(timeout=60_000), store=store, clock=store.clock)
    store.go.clear()
    async with open_house(house), visit(house) as client:
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        await store.entered.wait()
        await store.clock.run_for(600_000)
        store.go.set()
        assert (await client.reply()).startswith("250 ")
        await store.clock.run_for(59_000)
        assert (await client.say("NOOP")).startswith("250 ")


async def test_a_stop_answers_commits_and_turns_others_away() -> None:
    store = Store()
    house = House(server(), store=store)
    store.go.clear()
    async with open_house(house), visit(house) as idle, visit(house) as sending, visit(house) as committing:
        await sending.begin()
        sending.writer.write(b"half a mess")
        await committing.begin()
        committing.writer.write(b"a\r\n.\r\n")
        await store.entered.wait()
        stop = asyncio.ensure_future(house.door.stop())
        assert (await idle.reply()).startswith("421 4.3.2 ")
        assert (await sending.reply()).startswith("421 4.3.2 ")
        assert not stop.done()
        store.go.set()
        assert (await committing.reply()).startswith("250 ")
        assert (await committing.reply()).startswith("421 4.3.2 ")
        await stop
        assert house.door.sessions == 0
        assert len(await house.queued()) == 1
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", house.door.port)


async def test_a_stop_does_not_wait_for_ever() -> None:
    store = Store()
    house = House(server(), store=store, clock=store.clock)
    store.go.clear()
    async with open_house(house), visit(house) as client:
        await client.begin()
        client.writer.write(b"a\r\n.\r\n")
        await store.entered.wait()
        stop = asyncio.ensure_future(house.door.stop(8000))
        await store.clock.run_for(9000)
        await stop
        assert await client.reply() == ""
        assert await house.queued() == []
        store.go.set()


class Names:
    """A resolver that knows what a test tells it."""

    def __init__(self) -> None:
        self.answer: Sequence[str] | Exception = ["127.0.0.1"]
        self.answers = asyncio.Event()
        self.answers.set()

    async def mx(self, domain: str) -> Sequence[MxHost]:
        return []

    async def addresses(self, host: str) -> Sequence[str]:
        """The same answer to all, once there is one."""
        await self.answers.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def names(self, address: str) -> Sequence[str]:
        return [address]


async def turned_away(house: House) -> str:
    """What a client reads that is not let in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
    client = Client(reader, writer)
    said = await client.reply()
    assert await client.reply() == ""
    await client.close()
    return said


async def came(house: House) -> None:
    """Wait until the door has read what its only client sent."""
    await turns(20)
    assert not house.door.held


async def relays(house: House) -> str:
    """What a local client is told that wants to send anywhere: the code."""
    async with visit(house) as client:
        await client.say("EHLO c")
        await client.say("MAIL FROM:<>")
        return (await client.say("RCPT TO:<a@anywhere.example>"))[:3]


def house_of_names(names: Names, clock: FakeClock, settings: ServerSettings) -> House:
    """A house whose door can look names up."""
    house = House(settings, clock=clock)
    house.door = Door(
        house.door.settings, house.store, clock, house.observer, inline_max=65536, resolver=names
    )
    return house


async def test_host_names_of_relay_clients_are_looked_up_again() -> None:
    clock, names = FakeClock(), Names()
    house = house_of_names(names, clock, server(relay_clients=("web.example.org",)))
    async with open_house(house):
        assert await relays(house) == "250"
        names.answer = ResolveFailed("no answer")
        await clock.run_for(600_000)
        assert await relays(house) == "250"
        names.answer = NameNotFound("gone")
        await clock.run_for(600_000)
        assert await relays(house) == "554"


async def test_the_start_does_not_wait_for_dns() -> None:
    names = Names()
    names.answers.clear()
    house = house_of_names(names, FakeClock(), server(relay_clients=("web.example.org",)))
    async with open_house(house):
        assert await relays(house) == "451"
        names.answers.set()
        await asyncio.sleep(0)
        assert await relays(house) == "250"


async def test_while_a_name_is_not_known_nobody_is_refused_for_good() -> None:
    clock, names = FakeClock(), Names()
    names.answer = ResolveFailed("no answer")
    house = house_of_names(names, clock, server(relay_clients=("web.example.org",)))
    async with open_house(house):
        assert await relays(house) == "451"
        names.answer = ["192.0.2.1"]
        await clock.run_for(30_000)
        assert await relays(house) == "554"


async def test_a_reload_takes_effect_on_the_next_session() -> None:
    names = Names()
    house = house_of_names(names, FakeClock(), server(maxmsgsize=10))
    async with open_house(house):
        assert await relays(house) == "554"
        house.door.reload(server(maxmsgsize=20, relay_clients=("web.example.org",)))
        await turns(5)
        assert await relays(house) == "250"
        async with visit(house) as client:
            assert "SIZE 20\r\n" in await client.say("EHLO c")


async def test_an_open_session_keeps_the_rules_that_it_announced() -> None:
    house = house_of_names(Names(), FakeClock(), server(maxmsgsize=100, relay_clients=("127.0.0.1",)))
    async with open_house(house), visit(house) as client:
        assert "SIZE 100\r\n" in await client.say("EHLO c")
        await client.begin()
        house.door.reload(server(maxmsgsize=10))
        await turns(5)
        assert (await client.send(b"Subject: within 100\r\n\r\nx\r\n.\r\n")).startswith("250 ")


@pytest.mark.parametrize(
    ("peername", "address"),
    [
        (("192.0.2.1", 25), "192.0.2.1"),
        (("::ffff:192.0.2.1", 25, 0, 0), "192.0.2.1"),
        (("fe80::1%eth0", 25, 0, 2), "fe80::1"),
        (("::1", 25, 0, 0), "::1"),
        ("", ""),
        (None, ""),
    ],
)
def test_client_address(peername: object, address: str) -> None:
    assert client_address(peername) == address


async def test_ipv4_clients_of_an_ipv6_listener_are_ipv4() -> None:
    house = House(server(relay_clients=(LOOPBACK,)))
    house.door.settings = replace(house.door.settings, interface="::")
    try:
        await house.door.start()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    await house.store.open()
    async with visit(house) as client:
        await client.begin("to@elsewhere.example")
        await client.send(b"a\r\n.\r\n")
    await house.door.stop()
    [recipient] = await house.queued()
    assert recipient.envelope.client == "127.0.0.1"


async def test_an_ipv6_listener_names_its_client_so() -> None:
    house = House(server())
    settings = replace(house.door.settings, interface="::1")
    house.door = Door(settings, house.store, house.clock, house.observer, inline_max=65536)
    async with open_house(house):
        reader, writer = await asyncio.open_connection("::1", house.door.port)
        client = Client(reader, writer)
        assert (await client.reply()).startswith("220 ")
        await client.begin()
        assert (await client.send(b"hello\r\n.\r\n")).startswith("250 ")
        [recipient] = await house.queued()
        assert recipient.envelope.client == "::1"
        handle = await house.store.content(recipient)
        assert b"([IPv6:::1])" in await handle.read(handle.size)
        handle.close()
        await client.close()


class Shared:
    """A `Passing` of a process that takes mail or not; another one does."""

    out = False

    def passes(self, connection: socket.socket, connections: int) -> bool:
        return False

    def count(self, connections: int) -> None:
        return None

    def elsewhere(self) -> bool:
        return self.out


async def test_sessions_end_at_the_second_look_of_their_own_door_that_finds_mail_taken_elsewhere() -> None:
    shared, clock = Shared(), FakeClock()
    async with open_house(House(server(), clock=clock)) as ours, visit(ours) as client:
        ours.door._passing = shared
        # Another door of the process, or a connection, has counted it out before this door looks.
        shared.out = True
        clock.advance(1000)
        await turns()
        assert (await client.say("NOOP")).startswith("250 ")
        clock.advance(1000)
        assert (await client.reply()).startswith("421")
