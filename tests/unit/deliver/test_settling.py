"""Settled or parked: an internal error costs no more than the recipient that it concerns."""

from __future__ import annotations

import pytest

from mqcd.config.settings import ReplyAction
from mqcd.core.events import Verb
from mqcd.core.model import Deferred, Phase, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.selection import Selection
from mqcd.core.smtp.reply import Reply
from tests.fakes.dialer import Peer
from tests.unit.core.selecting.test_rules import rule as standing_rule
from tests.unit.deliver.kit import MINUTE, SCHEDULE, Kit
from tests.unit.deliver.test_replying import rule, ruled
from tests.unit.deliver.test_service import fail_by_a_bug
from tests.unit.deliver.test_standing import stand


class Poisoned(RetrySchedule):
    """Has no due time for one recipient."""

    def next_due(self, recipient: Recipient, now: int, *, may_expire: bool = True) -> int | None:
        if recipient.address.startswith("bad@"):
            fail_by_a_bug()
        return super().next_due(recipient, now, may_expire=may_expire)


POISONED = Poisoned(
    delays=SCHEDULE.delays, maxtime=SCHEDULE.maxtime, maxtime_reports=SCHEDULE.maxtime_reports
)


async def due(kit: Kit, address: str) -> int:
    """In how many ms a recipient is tried again."""
    [left] = [each async for each in kit.store.scan(Selection(recipient=address))]
    return left.due - kit.clock.now()


async def test_only_a_recipient_without_a_verdict_is_put_off_for_the_fault() -> None:
    """It backs off and expires, though its own schedule never has a verdict."""
    hosts = {"192.0.2.1": lambda: Peer({"RCPT": "450 4.2.1 busy"})}
    async with Kit(hosts=hosts, schedule=POISONED) as kit:
        await kit.submit("bad@example.com", "good@example.com")
        await kit.heard(Verb.DEFERRED, 2)
        await kit.until(lambda: not kit.deliverer.active)
        put_off = kit.observer.of(Verb.DEFERRED)
        verdicts = {each.recipient.address: each.verdict for each in put_off if each.recipient is not None}
        bad, good = verdicts["bad@example.com"], verdicts["good@example.com"]
        assert isinstance(bad, Deferred)
        assert isinstance(good, Deferred)
        assert (bad.reply.status, good.reply.status) == ("4.3.0", "4.2.1")
        assert not bad.possibly_delivered
        assert await due(kit, "bad@example.com") == SCHEDULE.delays[0]
        await kit.clock.run_for(SCHEDULE.delays[0])
        await kit.heard(Verb.DEFERRED, 4)
        await kit.until(lambda: not kit.deliverer.active)
        assert await due(kit, "bad@example.com") == SCHEDULE.delays[1]
        await kit.clock.run_for(SCHEDULE.maxtime + max(SCHEDULE.delays))
        await kit.heard(Verb.EXPIRED, 2)


async def test_an_error_of_our_own_about_an_attempt_delivers_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the next hop has not taken is put off."""
    monkeypatch.setattr("mqcd.deliver.connection.attempt._attempts", lambda *_: fail_by_a_bug)
    async with Kit(hosts={"192.0.2.1": lambda: Peer({"RCPT full@example.com": "450 4.2.2 full"})}) as kit:
        await kit.submit("a@example.com", "full@example.com")
        verdict = await kit.delivered()
        assert (verdict.reply.code, verdict.attempt.phase) == (250, Phase.DOT)
        assert (await kit.deferred()).reply.status == "4.3.0"
        await kit.clock.run_for(SCHEDULE.maxtime // 2)
        assert [message[1] for message in kit.dialer.messages] == [("a@example.com",)]


async def test_an_error_of_our_own_behind_an_unanswered_dot_is_possibly_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqcd.deliver.connection.attempt._attempts", lambda *_: fail_by_a_bug)
    async with Kit(hosts={"192.0.2.1": lambda: Peer({".": ""})}) as kit:
        await kit.submit("a@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.status, verdict.possibly_delivered) == ("4.3.0", True)


async def test_a_route_without_a_verdict_costs_one_recipient_of_a_claim() -> None:
    async with Kit(schedule=POISONED) as kit:
        refused = Reply(code=450, status="4.2.1", text="not now")
        kit.deliverer.suppress({"bad@example.com": refused, "worse@example.com": refused}.get)
        kit.deliverer.halt(True)
        for name in ("bad", "worse", "good"):
            await kit.submit(f"{name}@example.com")
        kit.deliverer.halt(False)
        await kit.heard(Verb.DELIVERED)
        await kit.heard(Verb.DEFERRED)
        await kit.until(lambda: not kit.deliverer.active)
        assert await due(kit, "bad@example.com") == SCHEDULE.delays[0]


async def test_what_hears_of_verdicts_keeps_none_from_the_store(caplog: pytest.LogCaptureFixture) -> None:
    async with Kit() as kit:
        kit.deliverer._settling.on_verdicts = fail_by_a_bug
        await kit.submit("a@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.until(lambda: not kit.deliverer.active)
        assert "a bug of ours" in caplog.text


@pytest.mark.parametrize("verb", ["connect", "RCPT"])
async def test_what_hears_of_effects_changes_no_outcome(verb: str) -> None:
    settings = ruled(rule(ReplyAction.SUSPEND, match="421*", span=1000))
    async with Kit(settings, {"192.0.2.1": lambda: Peer({verb: "421 4.7.0 too many"})}) as kit:
        kit.deliverer.on_effect(fail_by_a_bug)
        await kit.submit("a@example.com")
        assert (await kit.deferred()).reply.code == 421
        await kit.until(lambda: not kit.deliverer.active)


async def test_an_error_of_our_own_about_what_lanes_give_back_parks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what a rule keeps back in the same claim."""
    async with Kit(hosts={"192.0.2.1": "Connection refused"}) as kit:
        await kit.submit("a@example.com")
        await kit.deferred()
        monkeypatch.setattr("mqcd.deliver.settling.part", fail_by_a_bug)
        stand(kit, standing_rule("hold", "sender = bad@example.org"))
        kit.deliverer.halt(True)
        for number in range(3):
            await kit.submit(f"b@b{number}.example")
        await kit.submit("c@c.example", sender="bad@example.org")
        kit.deliverer.halt(False)
        await kit.heard(Verb.HELD)
        # One stays as the probe.
        await kit.until(lambda: kit.deliverer.active == 1)
        assert await due(kit, "b@b2.example") == SCHEDULE.delays[0]


@pytest.mark.parametrize("part", ["_table.failed", "_settling.judge"])
async def test_an_error_of_our_own_where_no_host_is_reached_costs_one_deferral(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, name = part.split(".")
    async with Kit(hosts={"192.0.2.1": "Connection refused"}) as kit:
        with monkeypatch.context() as patch:
            patch.setattr(getattr(kit.deliverer, holder), name, fail_by_a_bug)
            await kit.submit("a@example.com")
            assert (await kit.deferred()).reply.status == "4.3.0"
        await kit.until(lambda: not kit.deliverer.active)
        kit.dialer.hosts["192.0.2.1"] = Peer
        await kit.clock.run_for(20 * MINUTE)
        await kit.heard(Verb.DELIVERED)
