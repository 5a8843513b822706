"""What slows a door down, and what closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mqcd.core.model import Recipient, Submission
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.load import MOST_DELAY_MS, REFUSE_MS, REFUSE_WAITING, SLOW_MS, SLOW_WAITING, Load
from tests.fakes.clock import FakeClock, turns
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.submit.support import Client, House, open_house, server, visit


@pytest.mark.parametrize(
    ("waiting", "ms", "delay", "refused"),
    [
        (0, 0, 0, False),
        (REFUSE_WAITING, SLOW_MS - 1, 0, False),
        (SLOW_WAITING - 1, 60_000, 0, False),
        (SLOW_WAITING, SLOW_MS, SLOW_MS, False),
        (SLOW_WAITING, 60_000, MOST_DELAY_MS, False),
        (REFUSE_WAITING - 1, 60_000, MOST_DELAY_MS, False),
        (REFUSE_WAITING, REFUSE_MS - 1, REFUSE_MS - 1, False),
        (REFUSE_WAITING, REFUSE_MS, REFUSE_MS, True),
    ],
)
def test_messages_that_wait_to_be_committed(waiting: int, ms: int, delay: int, refused: bool) -> None:
    clock = FakeClock()
    load = Load(clock.monotonic)
    for _ in range(waiting):
        load.begin()
    clock.advance(ms)
    assert load.delay == delay
    refusal = load.refusal()
    assert (refusal is not None) is refused
    assert refusal is None or (refusal[0] is Reason.OVERLOAD and refusal[1].code == 452)
    assert load.closed() is None


def test_slow_commits_are_forgotten_soon() -> None:
    clock = FakeClock()
    load = Load(clock.monotonic)
    numbers = [load.begin() for _ in range(REFUSE_WAITING)]
    clock.advance(2000)
    for number in numbers:
        load.end(number)
    for _ in range(REFUSE_WAITING):
        load.begin()
    assert load.latency == 2000
    assert load.refusal() is not None
    clock.advance(500)
    assert load.latency == 1000
    load.end(load.begin())
    assert load.latency == 1000
    clock.advance(250)
    assert load.refusal() is None
    assert load.delay == 750


@pytest.mark.parametrize(
    ("percent", "delay", "code"),
    [(100, 0, 0), (4, 0, 0), (3, MOST_DELAY_MS, 0), (2, MOST_DELAY_MS, 0), (1, MOST_DELAY_MS, 452)],
)
def test_memory(percent: int, delay: int, code: int) -> None:
    load = Load(FakeClock().monotonic)
    load.remember(percent << 20, 100 << 20)
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


async def test_a_door_refuses_more_than_can_be_committed_and_recovers() -> None:
    clock = FakeClock()
    store = SlowStore(clock)
    house = House(server(maxpeerconnections=0), store=store, clock=clock)
    async with open_house(house), visit(house) as last:
        clients: list[Client] = []
        for number in range(REFUSE_WAITING):
            reader, writer = await asyncio.open_connection("127.0.0.1", house.door.port)
            client = Client(reader, writer)
            await client.reply()
            await client.begin()
            client.writer.write(b"a\r\n.\r\n")
            while store.waiting <= number:
                await asyncio.sleep(0)
            clients.append(client)
        await last.say("EHLO client")
        assert (await last.say("MAIL FROM:<>")).startswith("250 ")
        await last.say("RSET")
        clock.advance(REFUSE_MS)
        assert (await last.say("MAIL FROM:<>")).startswith("452 4.3.1 ")
        assert house.reasons() == ["overload"]
        store.go.set()
        assert [(await client.reply())[:3] for client in clients] == ["250"] * REFUSE_WAITING
        await turns()
        assert (await last.say("MAIL FROM:<>")).startswith("250 ")
        for client in clients:
            await client.close()
