"""Reply rules: what they make of replies, in a table and in a delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqcd.config.settings import DeliverSettings, ReplyAction, ReplyRuleSettings
from mqcd.core.events import Verb
from mqcd.core.model import Phase
from mqcd.core.smtp.classes import OutcomeClass
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.replying import Effect, by_rules, rule_for
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.smtp.exchange import Outcome, Result
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import RELAYED, Kit

DEFER, BOUNCE, SUSPEND = ReplyAction.DEFER, ReplyAction.BOUNCE, ReplyAction.SUSPEND
SITE = Destination(name="mx.example", hosts=(("mx.example", "mx2.example"),), port=25)
GREYLISTED = Reply(code=450, status="4.7.1", text="Greylisted, try later")
UNKNOWN = Reply(code=550, status="5.1.1", text="No such user")
BLOCKED = Reply(code=421, status="", text="Too many connections from you")


def rule(action: ReplyAction = DEFER, **changes: Any) -> ReplyRuleSettings:
    return replace(ReplyRuleSettings(action=action), **changes)


@pytest.mark.parametrize(
    ("changes", "fitting"),
    [
        ({}, "GUB"),
        ({"match": "4*"}, "GB"),
        ({"match": "450 greylisted*"}, "G"),
        ({"match": "450 4.7.1 *"}, "G"),
        ({"match": "*too many*"}, "B"),
        ({"match": "421"}, ""),
        ({"kind": OutcomeClass.POLICY}, "G"),
        ({"kind": OutcomeClass.ADDRESS}, "U"),
        ({"kind": OutcomeClass.SYSTEM}, "B"),
        ({"destination": "d.example"}, "GUB"),
        ({"destination": "mx2.example"}, "GUB"),
        ({"destination": "*.example"}, "GUB"),
        ({"destination": "other.example"}, ""),
    ],
)
def test_a_rule_fits_replies_by_text_class_and_destination(changes: dict[str, Any], fitting: str) -> None:
    replies = {"G": GREYLISTED, "U": UNKNOWN, "B": BLOCKED}
    rules = [rule(**changes)]
    found = [name for name, reply in replies.items() if rule_for(rules, reply, "d.example", SITE)]
    assert "".join(found) == fitting


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (DEFER, Result.BOUNCED, Result.DEFERRED),
        (DEFER, Result.DEFERRED, Result.DEFERRED),
        (BOUNCE, Result.DEFERRED, Result.BOUNCED),
        (BOUNCE, Result.DELIVERED, Result.DELIVERED),
        (SUSPEND, Result.DEFERRED, Result.DEFERRED),
        (SUSPEND, Result.BOUNCED, Result.BOUNCED),
    ],
)
def test_an_outcome_changes_as_the_rule_says(action: ReplyAction, before: Result, after: Result) -> None:
    outcome = Outcome(result=before, reply=GREYLISTED, phase=Phase.RCPT)
    changed, effect = by_rules([rule(action)], outcome, "d.example", SITE)
    assert (changed.result, changed.reply) == (after, GREYLISTED)
    assert (effect is not None) is (action is SUSPEND)


def test_the_first_rule_that_fits_counts() -> None:
    rules = [rule(BOUNCE, match="550*"), rule(SUSPEND, match="4*"), rule(BOUNCE)]
    outcome = Outcome(result=Result.DEFERRED, reply=GREYLISTED, phase=Phase.RCPT)
    changed, effect = by_rules(rules, outcome, "d.example", SITE)
    assert (changed, effect) == (outcome, Effect(rule=rules[1], site="mx.example", reply=GREYLISTED))


def test_what_may_have_been_taken_is_not_bounced() -> None:
    outcome = Outcome(result=Result.DEFERRED, reply=BLOCKED, phase=Phase.DOT, possibly_delivered=True)
    assert by_rules([rule(BOUNCE)], outcome, "d.example", SITE) == (outcome, None)


def ruled(*rules: ReplyRuleSettings) -> DeliverSettings:
    return replace(RELAYED, rules=rules)


async def test_a_refusal_is_deferred_by_a_rule() -> None:
    hosts = {"192.0.2.1": lambda: Peer({"RCPT": "550 5.7.1 blocked for now"})}
    async with Kit(ruled(rule(DEFER, match="550 *for now*")), hosts) as kit:
        await kit.submit("a@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.code, kit.observer.count(Verb.BOUNCED)) == (550, 0)


async def test_a_deferral_is_bounced_by_a_rule_until_a_reload() -> None:
    hosts = {"192.0.2.1": lambda: Peer({"RCPT": "450 4.2.2 mailbox full"})}
    async with Kit(ruled(rule(BOUNCE, kind=OutcomeClass.MAILBOX)), hosts) as kit:
        await kit.submit("a@example.com")
        await kit.heard(Verb.BOUNCED)
        kit.deliverer.reload(RELAYED, kit.deliverer._terms.schedule, ())
        await kit.submit("b@example.com")
        await kit.heard(Verb.DEFERRED)


@pytest.mark.parametrize("verb", ["connect", "RCPT"])
async def test_a_reply_reports_what_it_means_for_its_destination(verb: str) -> None:
    peer = {verb: "421 4.7.0 too many connections"}
    async with Kit(ruled(rule(SUSPEND, match="421*", span=1000)), {"192.0.2.1": lambda: Peer(peer)}) as kit:
        effects: list[Effect] = []
        kit.deliverer.on_effect(effects.append)
        await kit.submit("a@example.com")
        await kit.deferred()
        assert [(each.site, each.reply.code) for each in effects] == [("192.0.2.1:2525", 421)]
