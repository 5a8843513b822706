"""Standing rules in delivery: claimed mail, mail in lanes, and new mail for a free connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqcd.config.settings import Rate
from mqcd.core.events import Verb
from mqcd.core.model import Action, Area, Batch
from mqcd.core.queueing.amendment import batch_of
from mqcd.core.selecting.rules import StandingRule
from mqcd.core.selecting.selection import Selection
from tests.contract.mail import carry_out
from tests.fakes.clock import START_MS
from tests.fakes.dialer import Peer
from tests.unit.core.selecting.test_rules import rule
from tests.unit.deliver import test_held as held
from tests.unit.deliver.kit import MINUTE, RELAYED, Kit
from tests.unit.deliver.test_direct import warmed

GRACE = 60 * MINUTE
RELAY = "192.0.2.1:2525"
HELD_BACK = ("hold", "bounce", "suspend")


def stand(kit: Kit, *rules: StandingRule) -> None:
    kit.deliverer.rule(rules, GRACE)


async def areas(kit: Kit) -> list[Area]:
    return [each.area async for each in kit.store.scan(Selection())]


@pytest.mark.parametrize(
    ("action", "area"), [("hold", Area.HELD), ("bounce", Area.REMOVED), ("suspend", Area.DEFERRED)]
)
@pytest.mark.parametrize("where", ["sender = from@example.org", f"site = {RELAY}", "domain = example.com"])
async def test_new_mail_comes_under_a_rule(action: str, area: Area, where: str) -> None:
    async with Kit() as kit:
        stand(kit, rule(action, where, until=START_MS + GRACE))
        sent = await kit.submit("a@example.com", "b@example.com")
        other = await kit.submit("c@example.net", sender="other@example.org") if "site" not in where else []
        await kit.heard(Verb.DELIVERED, len(other))
        await kit.deliverer.drained()
        assert kit.deliverer.active == 0
        assert await areas(kit) == [area] * 2
        assert all(Verb.ATTEMPTED not in kit.observer.verbs(each.key) for each in sent)
        assert kit.deliverer.standing.applied[f"{action}-1"] == 2


@pytest.mark.parametrize("action", HELD_BACK)
async def test_new_mail_for_a_free_connection_is_not_exempt(action: str) -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        stand(kit, rule(action, "sender = from@example.org", until=START_MS + GRACE))
        await kit.submit("a@example.com")
        await kit.deliverer.drained()
        assert (door.reserved, len(kit.dialer.messages)) == ([], 1)
        stand(kit)
        await kit.submit("b@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(door.reserved) == 1


async def test_slowed_mail_does_not_take_a_free_connection() -> None:
    async with Kit() as kit:
        door = await warmed(kit)
        stand(kit, rule("slow", "sender = from@example.org", connections=1))
        await kit.submit("a@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert door.reserved == []
        lanes = {lane.name: lane.rule for lane in kit.deliverer.lanes()}
        assert lanes == {RELAY: "", f"{RELAY} by slow-1": "slow-1"}


async def test_a_held_recipient_names_rule_author_and_reason() -> None:
    async with Kit() as kit:
        stand(kit, rule("hold", by="uid:7", reason="spam run"))
        await kit.submit("a@example.com")
        await kit.heard(Verb.HELD)
        batch = kit.observer.of(Verb.HELD)[0].verdict.batch  # type: ignore[union-attr]
        assert (batch.id, batch.by, batch.reason) == ("hold-1", "uid:7", "spam run")


async def test_mail_in_lanes_comes_under_a_new_rule() -> None:
    """One connection is busy with a peer that does not answer; the others wait in the lane."""
    settings = replace(RELAYED, maxserverconnections=1)
    async with Kit(settings, {"192.0.2.1": lambda: Peer({"DATA": None})}) as kit:
        await kit.submit("first@example.com")
        await kit.heard(Verb.ATTEMPTED)
        await kit.submit("a@example.com", sender="bad@example.org")
        await kit.submit("b@example.com")
        await kit.until(lambda: kit.deliverer.lanes()[0].waiting == 2)
        stand(
            kit,
            rule("hold", "sender = bad@example.org"),
            rule("slow", "sender = from@example.org", connections=1),
        )
        await kit.heard(Verb.HELD)
        waiting = {lane.name: lane.waiting for lane in kit.deliverer.lanes()}
        assert waiting[RELAY] == 0
        stand(kit)
        await kit.until(lambda: kit.deliverer.lanes()[0].waiting == 1)


@pytest.mark.parametrize("action", HELD_BACK)
async def test_a_job_that_connects_comes_under_a_new_rule(action: str) -> None:
    peer = Peer(tls_first=True)
    async with Kit(hosts={"192.0.2.1": lambda: peer}) as kit:
        await kit.submit("a@example.com")
        await kit.until(lambda: peer.open)
        stand(kit, rule(action, "sender = from@example.org", until=START_MS + GRACE))
        peer.greet()
        await kit.until(lambda: kit.deliverer.standing.applied.get(f"{action}-1", 0) == 1)
        await kit.deliverer.drained()
        assert (peer.messages, kit.deliverer.active) == ([], 0)
        assert kit.observer.count(Verb.ATTEMPTED) == 0


async def test_a_suspension_ends_with_its_rule() -> None:
    async with Kit() as kit:
        stand(kit, rule("suspend", "domain = example.com", until=START_MS + MINUTE))
        await kit.submit("a@example.com")
        await kit.submit("b@example.com")
        await kit.clock.run_for(MINUTE - 1)
        assert kit.dialer.messages == []
        await kit.clock.run_for(1000)
        await kit.heard(Verb.DELIVERED, 2)


@pytest.mark.parametrize("where", ["domain = example.com", "sender = from@example.org"])
async def test_no_suspension_ends_by_a_leap_of_the_clock(where: str) -> None:
    async with Kit() as kit:
        stand(kit, rule("suspend", where, until=START_MS + GRACE))
        await kit.submit("a@example.com")
        await kit.deliverer.drained()
        kit.clock.leap(3 * GRACE)
        await kit.submit("b@example.com")
        await kit.clock.run_for(30 * MINUTE)
        assert (kit.dialer.messages, kit.deliverer.active) == ([], 0)
        assert kit.deliverer.standing.applied["suspend-1"] < 10
        kit.clock.leap(-3 * GRACE)
        await kit.clock.run_for(4 * GRACE)
        await kit.heard(Verb.DELIVERED, 2)


async def test_claims_pass_over_a_suspended_domain() -> None:
    async with Kit() as kit:
        stand(kit, rule("suspend", "domain = example.com"))
        await kit.submit("a@example.com")
        await kit.deliverer.drained()
        for number in range(20):
            await kit.submit(f"r{number}@example.com")
        await kit.deliverer.drained()
        assert kit.deliverer.standing.applied["suspend-1"] == 1
        assert kit.deliverer.standing.suspended() == {"example.com": "suspend-1"}
        stand(kit)
        assert kit.deliverer.standing.suspended() == {}
        now = kit.clock.now()
        order = Batch(id="retry-1", action=Action.RETRY, at=now, by="server", until=now)
        assert await carry_out(kit.store, order) == (21, 0)
        await kit.heard(Verb.DELIVERED, 21)


async def test_a_domain_is_passed_over_anew_however_many_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two, one of which comes again."""
    monkeypatch.setattr("mqcd.deliver.standing.MAX_BARRED", 2)
    async with Kit() as kit:
        stand(kit, rule("suspend", "domain ~ *.example"))
        for names in ("abc", "bc"):
            for name in names:
                await kit.submit(f"x@{name}.example")
                await kit.deliverer.drained()
            assert kit.deliverer.standing.suspended().keys() == {f"{name}.example" for name in names[:2]}
            await kit.clock.run_for(15 * MINUTE)


async def test_a_suspended_site_is_named_whole() -> None:
    async with Kit() as kit:
        stand(kit, rule("suspend", f"site = {RELAY}"))
        await kit.submit("a@example.com")
        await kit.deliverer.drained()
        assert kit.deliverer.standing.suspended() == {RELAY: "suspend-1"}


async def test_suspended_mail_neither_expires_nor_counts() -> None:
    async with Kit(hosts={"192.0.2.1": None}) as kit:
        stand(kit, rule("suspend", "domain = example.com"))
        await kit.submit("a@example.com")
        await kit.clock.run_for(100 * 60 * MINUTE)
        [waiting] = [each async for each in kit.store.scan(Selection())]
        assert (waiting.attempts, waiting.area) == (0, Area.DEFERRED)
        assert kit.observer.count(Verb.EXPIRED) == 0


async def test_a_rate_of_a_rule_holds_for_its_mail_alone() -> None:
    async with Kit() as kit:
        stand(kit, rule("slow", "domain = slow.example", rate=(1, 10 * MINUTE)))
        for number in range(3):
            await kit.submit(f"r{number}@slow.example")
        await kit.submit("a@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        await kit.clock.run_for(9 * MINUTE)
        assert kit.observer.count(Verb.DELIVERED) == 2
        await kit.clock.run_for(12 * MINUTE)
        assert kit.observer.count(Verb.DELIVERED) == 4


async def test_a_rule_only_lowers_limits() -> None:
    settings = replace(RELAYED, maxserverconnections=2)
    async with Kit(settings) as kit:
        router = kit.deliverer.explainer()._router
        recipients = await kit.submit("a@example.com")
        hop = router.known(recipients[0].envelope, "example.com")
        assert hop is not None
        slowed = router.slowed(hop, rule("slow", connections=9, rate=(5, 1000)))
        assert (slowed.policy.connections, slowed.policy.rate) == (2, Rate(count=5, per=1000))
        assert router.slowed(hop, rule("slow", number=2, connections=1)).policy.connections == 1


async def test_explain_names_the_rule() -> None:
    async with Kit() as kit:
        stand(kit, rule("suspend", "domain = example.com", name="maintenance", reason="they asked"))
        await kit.submit("a@example.com")
        await kit.deliverer.drained()
        [waiting] = [kit.deliverer.waiting(each) async for each in kit.store.scan(Selection())]
        why = await kit.deliverer.explainer().why(waiting)
        assert why["standing_rule"] == "suspend-1"
        assert "suspend-1 (maintenance)" in str(why["waiting_for"])
        would = await kit.deliverer.explainer().would_go("example.com", "example.com", "")
        assert would["standing_rule"] == "suspend-1"


@pytest.mark.parametrize(("action", "area"), [("hold", Area.HELD), ("suspend", Area.DEFERRED)])
async def test_mail_that_was_started_for_its_domain_comes_under_a_rule(action: str, area: Area) -> None:
    async with held.kit() as made:
        await made.submit("x@a.example")
        await made.deliverer.drained()
        stand(made, rule(action, "domain = a.example", until=made.clock.now() + GRACE))
        made.deliverer.start_held("a.example".__eq__)
        await made.until(lambda: made.deliverer.standing.applied.get(f"{action}-1", 0) > 0)
        await made.deliverer.drained()
        [each] = [each async for each in made.store.scan(Selection())]
        assert (each.area, each.attempts) == (area, 0)
        assert (batch_of(each) == "hold-1") is (action == "hold")


async def test_explain_names_the_rule_that_holds() -> None:
    async with Kit() as kit:
        stand(kit, rule("hold"))
        await kit.submit("a@example.com")
        await kit.heard(Verb.HELD)
        [waiting] = [kit.deliverer.waiting(each) async for each in kit.store.scan(Selection())]
        why = await kit.deliverer.explainer().why(waiting)
        assert "hold-1" in str(why["waiting_for"])
