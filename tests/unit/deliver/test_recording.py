"""What is given to the store: parks of thousands of recipients in parts, an attempt with its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient, Settlement, Submission
from mqcd.deliver.recording import PARKED_AT_ONCE, RETRY_MS, Recorder
from tests.contract.mail import Post, deferred
from tests.fakes.clock import FakeClock, turns
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore

MANY = 3 * PARKED_AT_ONCE + 1


class SlowStore(MemoryStore):
    """Records a park when the test says so; may fail once."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, RecordingObserver())
        self.parts: list[int] = []
        self.gate: asyncio.Future[None]
        self.fails = False

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        if self.fails:
            self.fails = False
            raise StoreUnavailable("as the test wants it")
        self.parts.append(len(recipients))
        self.gate = asyncio.get_running_loop().create_future()
        super().park(recipients, until)
        return self.gate


@pytest.mark.parametrize("fails", [False, True])
async def test_each_part_of_a_park_waits_for_the_one_before(fails: bool) -> None:
    clock = FakeClock()
    store = SlowStore(clock)
    await store.open()
    post = Post(store, clock)
    await post.send(*(f"u{number}@example.org" for number in range(MANY)))
    claimed = await post.claim_all(step=MANY)
    released: list[Recipient] = []
    settler = Recorder(store, clock, released.extend, lambda: None)
    until = clock.now() + 60_000
    settler.park(claimed, until)
    store.fails = fails
    done = asyncio.ensure_future(settler.done())
    for part in range(1, 4):
        await turns()
        assert store.parts == [PARKED_AT_ONCE] * part
        assert not done.done()
        store.gate.set_result(None)
        if fails and part == 1:
            await turns()
            assert settler.paused
            await clock.run_for(RETRY_MS)
    await turns()
    assert store.parts[3:] == [1]
    store.gate.set_result(None)
    await asyncio.wait_for(done, 60)
    assert len(released) == MANY
    assert store.next_due() == until
    settler.close()


async def test_a_stop_leaves_unbegun_parts_to_the_next_start() -> None:
    clock = FakeClock()
    store = SlowStore(clock)
    await store.open()
    post = Post(store, clock)
    await post.send(*(f"u{number}@example.org" for number in range(MANY)))
    settler = Recorder(store, clock, lambda _: None, lambda: None)
    settler.park(await post.claim_all(step=MANY), 0)
    settler.close()
    store.gate.set_result(None)
    await turns()
    assert store.parts == [PARKED_AT_ONCE]


class FaultyStore(SlowStore):
    """Takes one park; the others meet a bug."""

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        if self.parts:
            raise ZeroDivisionError("a bug of ours")
        return super().park(recipients, until)


async def test_parks_that_a_fault_refuses_keep_no_stop_waiting() -> None:
    clock = FakeClock()
    store = FaultyStore(clock)
    await store.open()
    post = Post(store, clock)
    await post.send("a@example.org", "b@example.org", "c@example.org")
    claimed = await post.claim_all()
    released: list[Recipient] = []
    recorder = Recorder(store, clock, released.extend, lambda: None)
    for each in claimed:
        recorder.park([each], 0)
    done = asyncio.ensure_future(recorder.done())
    await turns()
    store.gate.set_result(None)
    await turns()
    assert done.done()
    assert released == claimed


class ClosedStore(SlowStore):
    """Lists what it is asked for, and records no verdict."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.asked: list[str] = []

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        self.asked.append(f"begin {destination}")
        return super().begin(recipients, destination)

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        self.asked.append("settle")
        raise StoreUnavailable("the queue is not open")


async def test_a_verdict_is_given_in_the_turn_of_its_begin_and_not_tried_after_the_close() -> None:
    clock = FakeClock()
    store = ClosedStore(clock)
    await store.open()
    post = Post(store, clock)
    await post.send("a@example.org")
    [claimed] = await post.claim_all()
    recorder = Recorder(store, clock, lambda _: None, lambda: None)
    recorder.close()
    sleepers = clock.sleepers
    recorder.settle([Settlement(recipient=claimed, verdict=deferred(clock.now() + 60_000))], "example.org")
    assert store.asked == ["begin example.org", "settle"]
    await turns()
    assert clock.sleepers == sleepers
    assert not recorder.paused
