"""Whose outcome crashes have hidden again and again: known after each start, until an outcome is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mqcd.core.errors import StoreBusy
from mqcd.core.events import Verb
from mqcd.core.model import Delivered, Recipient, Settlement
from mqcd.core.selecting.selection import Selection
from mqcd.deliver.health.suspects import AGAIN_MS, SUSPECT, Suspects
from mqcd.deliver.health.watchdog import Kind
from tests.contract.mail import delivered
from tests.fakes.clock import FakeClock
from tests.fakes.dialer import Peer
from tests.fakes.observer import RecordingObserver
from tests.fakes.store import MemoryStore
from tests.unit.deliver.kit import MINUTE, RELAYED, Kit

HOUR = 60 * MINUTE


async def crash(kit: Kit, times: int, *addresses: str) -> None:
    """A message that is being tried at each of so many crashes. The store is closed after that."""
    await kit.store.open()
    await kit.submit(*addresses)
    for _ in range(times):
        claimed: list[Recipient] = []
        while not claimed:
            claimed += await kit.store.claim(100, kit.clock.now())
            kit.clock.advance(MINUTE)
        await kit.store.begin(claimed, "anywhere")
        await kit.store.close()
        await kit.store.open()
    await kit.store.close()


async def test_thrice_hidden_mail_is_listed_until_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mqcd.deliver")
    kit = Kit()
    await crash(kit, SUSPECT, "a@example.com", "b@example.com")
    await crash(kit, SUSPECT - 1, "c@example.com")
    async with kit:
        await kit.until(lambda: bool(kit.deliverer.stuck()))
        [stuck] = kit.deliverer.stuck()
        assert (stuck.kind, stuck.name, stuck.recipients) == (Kind.OUTCOME, "example.com", 2)
        assert " 3 attempts" in stuck.why
        assert 0 < stuck.since_ms < 2 * HOUR
        await kit.submit("other@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.clock.run_for(6 * HOUR)
        await kit.heard(Verb.DELIVERED, 4)
        assert not kit.deliverer.stuck()
        told = [each.getMessage() for each in caplog.records if "stuck: outcome" in each.getMessage()]
        assert told[0].startswith("stuck: outcome example.com, 2 recipients, message ")
        assert told[1:] == ["no longer stuck: outcome example.com"]


async def test_a_refusal_is_an_outcome_too() -> None:
    kit = Kit(hosts={"192.0.2.1": lambda: Peer(replies={"RCPT": "450 4.2.1 later"})})
    await crash(kit, SUSPECT, "a@example.com")
    async with kit:
        await kit.until(lambda: bool(kit.deliverer.stuck()))
        await kit.clock.run_for(5 * HOUR)
        await kit.heard(Verb.DEFERRED)
        assert not kit.deliverer.stuck()


async def test_without_patience_nobody_is() -> None:
    kit = Kit(replace(RELAYED, watchdog=0))
    await crash(kit, SUSPECT, "a@example.com")
    async with kit:
        await kit.clock.run_for(1000)
        assert not kit.deliverer.stuck()


class Busy(MemoryStore):
    """Cannot be read at first; afterwards has a recipient whose outcome becomes known meanwhile."""

    tries = 0
    recipient: Recipient
    suspects: Suspects

    async def scan(self, selection: Selection) -> AsyncIterator[Recipient]:
        self.tries += 1
        if self.tries == 1:
            raise StoreBusy("not now")
        verdict: Delivered = delivered()
        self.suspects.settled([Settlement(recipient=self.recipient, verdict=verdict)])
        yield self.recipient
        yield replace(self.recipient, qid=2)


async def test_an_unreadable_queue_is_read_again_without_ended_mail() -> None:
    kit = Kit()
    await kit.store.open()
    [recipient] = await kit.submit("a@example.com")
    await kit.store.close()
    clock = FakeClock()
    store = Busy(clock, RecordingObserver())
    store.recipient = replace(recipient, unknowns=SUSPECT)
    suspects = store.suspects = Suspects(store, clock)
    looking = asyncio.ensure_future(suspects.look())
    await asyncio.sleep(0)
    await clock.run_for(AGAIN_MS)
    await looking
    assert [each.qid for each in suspects] == [2]
    suspects.settled([Settlement(recipient=replace(store.recipient, qid=2), verdict=delivered())])
    assert not list(suspects)
