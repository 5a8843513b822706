"""What slows a door down, and what closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from mqcd.core.model import Recipient, Submission
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.load import (
    COMING_MS,
    FIRST,
    LEAST,
    MOST_DELAY_MS,
    MOST_WAIT_MS,
    PERIOD_MS,
    SLOW_MS,
    TOO_SLOW_MS,
    Load,
)
from tests.fakes.clock import FakeClock
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.submit.support import Client, House, open_house, server, visit


class Wave:
    """Sessions that send as much as a load lets them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.load = Load(self.clock.monotonic)
        self.given: list[object] = []
        self._count = 0

    def enter(self, count: int) -> int:
        """How many of so many sessions have a place at once; the others stand in line."""
        entered = 0
        for _ in range(count):
            self._count += 1
            name = self._count
            if self.load.enter(name):
                entered += 1
                self.given.append(name)
            else:
                self.load.line_up(name, lambda name=name: self.given.append(name))  # type: ignore[misc]
        return entered

    def commit(self, ms: int) -> int:
        """All that have places commit, which takes so long; how many these were."""
        committing = tuple(self.given)
        for name in committing:
            self.load.begin(name)
        self.given.clear()
        self.clock.advance(ms)
        for name in committing:
            self.load.end(name)
        return len(committing)


def test_quick_commits_open_the_window_to_all() -> None:
    wave = Wave()
    assert wave.enter(300) == FIRST
    assert [wave.commit(5) for _ in range(3)] == [FIRST, 2 * FIRST, 4 * FIRST]


def test_the_window_shrinks_to_what_is_committed_in_time() -> None:
    wave = Wave()
    wave.enter(1)
    wave.commit(10)
    wave.enter(500)
    # A disk that commits one message in 20 ms.
    taken = [wave.commit(20 * len(wave.given)) for _ in range(5)]
    assert taken[0] == FIRST
    assert all(20 * each <= SLOW_MS + 20 for each in taken[1:])
    assert wave.load.window >= LEAST


def test_a_disk_that_is_slow_for_one_is_no_overload() -> None:
    wave = Wave()
    for ms in (300, 350, TOO_SLOW_MS - 1):
        wave.enter(FIRST)
        assert wave.commit(ms) == FIRST
    assert wave.load.window >= FIRST
    wave.enter(FIRST)
    wave.commit(TOO_SLOW_MS + 100)
    assert wave.load.window < FIRST


def test_what_was_quick_is_forgotten() -> None:
    wave = Wave()
    wave.enter(1)
    wave.commit(1)
    for _ in range(3):
        wave.clock.advance(PERIOD_MS)
        wave.enter(1)
        wave.commit(300)
    wave.enter(FIRST)
    wave.commit(TOO_SLOW_MS - 1)
    assert wave.load.window >= FIRST


def test_slow_clients_hold_no_places() -> None:
    wave = Wave()
    assert wave.enter(FIRST) == FIRST
    wave.clock.advance(COMING_MS - 1)
    assert not wave.load.enter("another")
    wave.clock.advance(1)
    assert wave.load.enter("another")


def test_a_session_has_one_place() -> None:
    load = Load(FakeClock().monotonic)
    assert all(load.enter("one") for _ in range(2 * FIRST))
    assert load.enter("another")


def test_a_place_given_up_goes_to_the_next_in_line() -> None:
    wave = Wave()
    assert wave.enter(FIRST + 1) == FIRST
    wave.load.give_up("a stranger")
    assert len(wave.given) == FIRST
    wave.load.give_up(wave.given[0])
    assert len(wave.given) == FIRST + 1


def test_who_leaves_the_line_gets_no_place() -> None:
    wave = Wave()
    wave.enter(FIRST)
    called: list[str] = []
    for name in ("first", "second"):
        wave.load.line_up(name, lambda name=name: called.append(name))  # type: ignore[misc]
    assert not wave.load.leave("first")
    wave.load.begin(wave.given[0])
    wave.load.end(wave.given[0])
    assert called == ["second"]
    assert wave.load.leave("second")


@pytest.mark.parametrize(
    ("percent", "delay", "code"),
    [(100, 0, 0), (4, 0, 0), (3, MOST_DELAY_MS, 0), (2, MOST_DELAY_MS, 0), (1, MOST_DELAY_MS, 452)],
)
def test_memory(percent: int, delay: int, code: int) -> None:
    load = Load(FakeClock().monotonic)
    load.memory_is(percent << 20, 100 << 20)
    refusal, closed = load.refusal(), load.closed()
    assert load.delay == delay
    assert (refusal[1].code if refusal else 0) == code
    assert (closed[1].code if closed else 0) == (421 if code else 0)


def test_a_queue_that_takes_no_mail_is_said_at_once() -> None:
    load = Load(FakeClock().monotonic)
    load.refusing = "disk full"
    refusal = load.refusal()
    assert refusal is not None
    assert (refusal[0], refusal[1].code) == (Reason.STORE, 452)
    assert load.closed() is None


class SlowStore(MemoryStore):
    """Commits when a test says so."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, RecordingObserver())
        self.go = asyncio.Event()
        self.waiting = 0

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        self.waiting += 1
        await self.go.wait()
        return await super().enqueue(submission)


@pytest.mark.parametrize("end", ["RCPT TO:<x@elsewhere.example>", "RSET", "EHLO client", "QUIT", ""])
async def test_messages_that_do_not_come_keep_no_mail_out(end: str) -> None:
    clock = FakeClock()
    house = House(server(maxpeerconnections=0), clock=clock)
    async with open_house(house), visit(house) as last, AsyncExitStack() as clients:
        for _ in range(FIRST):
            client = await clients.enter_async_context(visit(house))
            await client.say("EHLO client")
            assert (await client.say("MAIL FROM:<>")).startswith("250 ")
            if end:
                await client.say(end)
            else:
                client.writer.transport.abort()
        await last.say("EHLO client")
        reply = asyncio.ensure_future(last.say("MAIL FROM:<>"))
        for _ in range(8):
            await clock.run_for(MOST_WAIT_MS // 8)
        assert (await reply).startswith("250 ")


async def test_a_message_with_one_good_recipient_takes_its_place_back() -> None:
    clock = FakeClock()
    house = House(server(maxpeerconnections=0), clock=clock)
    async with open_house(house), visit(house) as last, AsyncExitStack() as clients:
        await last.say("EHLO client")
        for _ in range(FIRST):
            client = await clients.enter_async_context(visit(house))
            await client.say("EHLO client")
            await client.say("MAIL FROM:<>")
            assert (await client.say("RCPT TO:<x@elsewhere.example>")).startswith("5")
            assert (await client.say("RCPT TO:<to@example.com>")).startswith("250 ")
        reply = asyncio.ensure_future(last.say("MAIL FROM:<>"))
        while not reply.done():
            await clock.run_for(MOST_WAIT_MS // 8)
        assert (await reply).startswith("452 4.3.1 ")


async def test_a_door_refuses_more_than_can_be_committed_and_recovers() -> None:
    clock = FakeClock()
    store = SlowStore(clock)
    house = House(server(maxpeerconnections=0), store=store, clock=clock)
    async with open_house(house), visit(house) as last:
        clients: list[Client] = []
        for number in range(FIRST):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            client = Client(reader, writer)
            await client.reply()
            await client.begin()
            client.writer.write(b"a\r\n.\r\n")
            while store.waiting <= number:
                await asyncio.sleep(0)
            clients.append(client)
        await last.say("EHLO client")
        last.writer.write(b"MAIL FROM:<>\r\n")
        reply = asyncio.ensure_future(last.reply())
        while not reply.done():
            await clock.run_for(MOST_WAIT_MS // 8)
        assert (await reply).startswith("452 4.3.1 ")
        assert house.reasons() == ["overload"]
        last.writer.write(b"MAIL FROM:<>\r\n")
        waiting = asyncio.ensure_future(last.reply())
        store.go.set()
        assert [(await client.reply())[:3] for client in clients] == ["250"] * FIRST
        assert (await waiting).startswith("250 ")
        for client in clients:
            await client.close()
