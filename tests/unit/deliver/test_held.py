"""Mail that rests for its domain: when it comes to rest, what starts it, and how its rest ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mqcd.core.errors import StoreUnavailable
from mqcd.core.events import Verb
from mqcd.core.model import Area, Recipient
from mqcd.core.ports import Notifier
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.fakes.store import MemoryStore
from tests.unit.deliver.kit import BY_DNS, MINUTE, SCHEDULE, Kit
from tests.unit.deliver.test_notifying import Reporter
from tests.unit.deliver.test_service import fail_by_a_bug

HOUR = 60 * MINUTE
HOLDING = Holding(
    domains=(
        HeldDomain("e.example", HoldMode.ETRN),
        HeldDomain("a.example", HoldMode.ATRN),
        HeldDomain("b.example", HoldMode.ATRN),
    ),
    maxtime=48 * HOUR,
    probe_interval=10 * MINUTE,
)
HELD = replace(SCHEDULE, holding=HOLDING)
RESOLVER = FakeResolver(
    addresses={"e.example": ["192.0.2.5"], "a.example": ["192.0.2.6"], "b.example": ["192.0.2.6"]}
)


def kit(queuecache: int = BY_DNS.queuecache, notifier: Notifier | None = None) -> Kit:
    """A world where the host of e.example refuses connections until it answers."""
    return Kit(
        replace(BY_DNS, queuecache=queuecache),
        {"192.0.2.5": "Connection refused", "192.0.2.6": Peer},
        RESOLVER,
        HELD,
        store=lambda clock, observer: MemoryStore(clock, observer, schedule=HELD),
        notifier=notifier,
    )


def held(made: Kit) -> int:
    return made.store.stats()[Area.HELD].recipients


def answer(made: Kit) -> None:
    """Its host takes connections from now on."""
    made.dialer.hosts["192.0.2.5"] = Peer


async def test_an_etrn_domain_out_of_reach_is_held() -> None:
    async with kit() as made:
        await made.submit("x@e.example")
        verdict = await made.deferred()
        assert (verdict.held, held(made)) == (True, 1)
        assert verdict.due == made.clock.now() + SCHEDULE.maxtime


async def test_mail_that_comes_while_it_is_out_of_reach_is_held() -> None:
    async with kit() as made:
        await made.submit("x@e.example")
        await made.heard(Verb.DEFERRED)
        # The first waits as the next probe, the others join the one at rest.
        for _ in range(5):
            await made.submit("y@e.example")
        await made.until(lambda: held(made) == 5)
        assert made.deliverer.active == 1


async def test_a_refused_recipient_is_not_held() -> None:
    async with kit() as made:
        made.dialer.hosts["192.0.2.5"] = lambda: Peer({"RCPT": "450 4.2.1 busy"})
        await made.submit("x@e.example")
        verdict = await made.deferred()
        assert (verdict.held, held(made)) == (False, 0)


async def test_a_request_starts_a_domains_mail_alone() -> None:
    async with kit() as made:
        await made.submit("x@e.example", "y@e.example")
        await made.submit("z@a.example")
        await made.until(lambda: held(made) == 3)
        answer(made)
        assert made.deliverer.start_held("nobody.example".__eq__) == []
        assert made.deliverer.start_held("e.example".__eq__) == ["e.example"]
        await made.heard(Verb.DELIVERED, 2)
        assert held(made) == 1


async def test_held_and_other_mail_take_turns_for_the_only_place() -> None:
    async with kit(queuecache=1) as made:
        answer(made)
        made.deliverer.halt(True)
        for number in range(6):
            await made.submit(f"x{number}@a.example")
            await made.submit(f"x{number}@e.example")
        assert made.deliverer.start_held("a.example".__eq__)
        made.deliverer.halt(False)
        most = 0
        while made.observer.count(Verb.DELIVERED) < 12:
            await made.clock.run_for(10, turns=1)
            most = max(most, made.deliverer.active)
        assert most == 1
        order = [heard.recipient.domain for heard in made.observer.of(Verb.DELIVERED) if heard.recipient]
        assert order == ["a.example", "e.example"] * 6


async def test_a_request_out_of_reach_leaves_all_held() -> None:
    async with kit() as made:
        for _ in range(30):
            await made.submit("x@e.example")
        await made.until(lambda: held(made) >= 29)
        await made.clock.run_for(2 * MINUTE)
        assert held(made) == 30
        attempts = made.observer.count(Verb.ATTEMPTED)
        assert made.deliverer.start_held("e.example".__eq__)
        await made.clock.run_for(MINUTE)
        assert held(made) == 30
        # One connection shows that nobody is there; what was claimed for it rests again, once.
        assert made.observer.count(Verb.ATTEMPTED) <= attempts + 30


async def test_probes_out_of_reach_ask_the_store_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kit() as made:
        await made.submit("x@e.example")
        await made.until(lambda: held(made) == 1)
        await made.clock.run_for(HOLDING.probe_interval + MINUTE)
        asked: list[str] = []
        for name in ("claim_held", "begin", "settle", "park"):
            monkeypatch.setattr(made.store, name, lambda *_, name=name: asked.append(name))
        dialled = len(made.dialer.dialled)
        await made.clock.run_for(4 * HOLDING.probe_interval)
        assert len(made.dialer.dialled) >= dialled + 4
        assert asked == []


async def test_a_probe_that_succeeds_starts_its_mail() -> None:
    async with kit() as made:
        await made.submit("x@e.example")
        await made.until(lambda: held(made) == 1)
        await made.clock.run_for(HOLDING.probe_interval + MINUTE)
        assert held(made) == 1
        attempts = made.observer.count(Verb.ATTEMPTED)
        answer(made)
        await made.clock.run_for(HOLDING.probe_interval)
        await made.heard(Verb.DELIVERED)
        assert (held(made), made.observer.count(Verb.ATTEMPTED)) == (0, attempts + 1)


@pytest.mark.parametrize("notify", ["", "NOTIFY=SUCCESS"])
async def test_new_mail_that_gets_through_brings_the_rest(notify: str) -> None:
    async with kit(notifier=Reporter()) as made:
        await made.submit("x@e.example")
        await made.until(lambda: held(made) == 1)
        answer(made)
        await made.submit("y@e.example", notify=[notify])
        await made.clock.run_for(2 * MINUTE)
        await made.heard(Verb.DELIVERED, 2)


async def test_what_is_not_collected_expires() -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        assert held(made) == 1
        await made.clock.run_for(HOLDING.maxtime - MINUTE)
        assert held(made) == 1
        await made.clock.run_for(2 * MINUTE)
        await made.heard(Verb.EXPIRED)
        assert not made.dialer.dialled
        assert held(made) == 0


async def test_an_error_of_our_own_at_the_end_of_a_rest_loses_no_mail_of_the_claim() -> None:
    async with kit() as made:
        await made.submit("x@a.example")
        made.deliverer.halt(True)
        await made.clock.run_for(HOLDING.maxtime + MINUTE)
        await made.submit("y@e.example")
        answer(made)
        made.deliverer._settling.on_verdicts = fail_by_a_bug
        made.deliverer.halt(False)
        await made.heard(Verb.EXPIRED)
        await made.heard(Verb.DELIVERED)
        await made.until(lambda: not made.deliverer.active)


async def test_an_etrn_domain_gets_a_last_attempt() -> None:
    async with kit() as made:
        await made.submit("x@e.example")
        await made.until(lambda: held(made) == 1)
        await made.clock.run_for(SCHEDULE.maxtime + HOUR)
        await made.heard(Verb.EXPIRED)
        assert held(made) == 0


@pytest.mark.parametrize("fault", ["ended", "unavailable"])
async def test_a_claim_that_is_cut_short_loses_nothing(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kit() as made:
        await made.submit("x@a.example", "x@b.example")
        claim_held, claims = made.store.claim_held, 0

        async def claim(domain: str, room: int) -> Sequence[Recipient]:
            nonlocal claims
            claims += 1
            claimed = await claim_held(domain, room)
            if fault == "ended" and claims == 1:
                # Verdicts on mail of both that was under way.
                made.deliverer._held._running.clear()
            if fault == "unavailable" and claims == 2:
                made.store.park(claimed, 0)
                raise StoreUnavailable("no room")
            return claimed

        monkeypatch.setattr(made.store, "claim_held", claim)
        assert len(made.deliverer.start_held(bool)) == 2
        await made.until(lambda: claims > 0)
        await made.clock.run_for(MINUTE)
        made.deliverer.start_held(bool)
        await made.clock.run_for(MINUTE)
        await made.heard(Verb.DELIVERED, 2)
        assert made.deliverer.active == 0
