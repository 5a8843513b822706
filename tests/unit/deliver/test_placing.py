"""Between claim and lane: batches, rules and advice, each in its turn, and a route that is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Action, Area
from mqcd.core.ports import MxHost
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from tests.fakes.clock import START_MS
from tests.fakes.resolver import FakeResolver
from tests.unit.core.selecting.test_rules import rule
from tests.unit.deliver.kit import BY_DNS, Kit
from tests.unit.deliver.test_reaching import act
from tests.unit.deliver.test_standing import GRACE, areas, stand


class Asking(FakeResolver):
    """Answers once it may."""

    def __init__(self) -> None:
        super().__init__(addresses={"example.com": ["192.0.2.1"]})
        self.may = asyncio.Event()

    async def mx(self, domain: str) -> Sequence[MxHost]:
        await self.may.wait()
        return await super().mx(domain)


@pytest.mark.parametrize("domain", ["example.com", "nowhere.example"])
async def test_an_action_comes_before_the_rules_and_the_failure_of_a_route_that_is_looked_up(
    domain: str,
) -> None:
    resolver = Asking()
    async with Kit(BY_DNS, resolver=resolver) as kit:
        stand(kit, rule("bounce", "site = example.com"))
        sent = await kit.submit(f"a@{domain}")
        await kit.until(lambda: domain in kit.deliverer._placing.asked())
        kit.deliverer.act([each.key for each in sent], act(Action.HOLD), Selection())
        resolver.may.set()
        await kit.heard(Verb.HELD)
        assert await areas(kit) == [Area.HELD]


async def test_a_rule_needs_no_route_that_cannot_be_found() -> None:
    async with Kit(BY_DNS) as kit:
        stand(kit, rule("hold", "sender = from@example.org"))
        await kit.submit("a@nowhere.example")
        await kit.heard(Verb.HELD)
        assert kit.observer.count(Verb.DEFERRED) == 0


@pytest.mark.parametrize("weaker", ["bounce", "suspend"])
async def test_a_stronger_rule_on_sites_waits_for_the_route(weaker: str) -> None:
    weak = rule(weaker, "sender = from@example.org", until=START_MS + GRACE)
    resolver = FakeResolver(addresses={"example.com": ["192.0.2.1"]})
    async with Kit(BY_DNS, resolver=resolver) as kit:
        stand(kit, weak, rule("hold", "site = example.com"))
        await kit.submit("a@example.com")
        await kit.heard(Verb.HELD)
        await kit.submit("a@nowhere.example")
        await kit.until(lambda: kit.deliverer.standing.applied.get(weak.id, 0) == 1)
        await kit.deliverer.drained()
        assert kit.deliverer.active == 0
        assert kit.observer.count(Verb.DEFERRED) == 0


async def test_advice_is_asked_for_where_a_rule_has_ended_during_the_look_up() -> None:
    """While it stands, it keeps the mail in any case, and advice is not asked for."""
    resolver = Asking()
    async with Kit(BY_DNS, resolver=resolver) as kit:
        kit.deliverer.suppress({"a@example.com": Reply(code=550, status="5.1.1", text="no such user")}.get)
        stand(kit, rule("suspend", "sender = from@example.org"), rule("hold", "site = other.example"))
        await kit.submit("a@example.com")
        await kit.until(lambda: "example.com" in kit.deliverer._placing.asked())
        stand(kit)
        resolver.may.set()
        await kit.heard(Verb.BOUNCED)
        assert kit.dialer.dialled == []


async def test_a_stop_hands_over_what_waits_for_its_route_once() -> None:
    async with Kit(BY_DNS, resolver=Asking()) as kit:
        sent = await kit.submit("a@example.com")
        placing = kit.deliverer._placing
        await kit.until(lambda: bool(placing.asked()))
        left = placing.stop()
        assert ([each.key for each in left], placing.stop(), placing.asked()) == ([sent[0].key], [], {})
        kit.deliverer._settling.park(left)
