"""Standing rules: which one counts for a recipient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqcd.core.model import Action, Area, Batch
from mqcd.core.queueing.amendment import amended
from mqcd.core.selecting.live import resolved
from mqcd.core.selecting.rules import RuleAction, RuleSet, StandingRule, where_of_batch
from mqcd.core.selecting.where import parse_where
from tests.fakes.clock import START_MS
from tests.unit.queue.support import recipient

NOW = START_MS
HOUR = 3_600_000
SITE = "mx.example"


def rule(action: str, where: str = "age > 0s", number: int = 1, **changes: Any) -> StandingRule:
    condition = parse_where(where, NOW + number, live=True)
    made = StandingRule(
        id=f"{action}-{number}", action=RuleAction(action), where=condition, at=NOW + number, by="uid:0"
    )
    return replace(made, **changes)


def found(*rules: StandingRule, destination: str | None = SITE, now: int = NOW, **changes: Any) -> str | None:
    counts = RuleSet(rules).find(recipient(**changes), destination, now)
    return None if counts is None else counts.id


def test_the_strongest_action_counts_then_the_oldest_rule() -> None:
    rules = [
        rule(action, number=number) for action in ("slow", "suspend", "bounce", "hold") for number in (2, 1)
    ]
    order = []
    while rules:
        counts = found(*rules)
        order.append(counts)
        rules = [each for each in rules if each.id != counts]
    assert order == [f"{action}-{number}" for action in RuleAction for number in (1, 2)]


@pytest.mark.parametrize(
    ("where", "counts"),
    [
        ("sender = sender@example.com", True),
        ("sender = other@example.com", False),
        ("not sender = other@example.com", True),
        ("site = MX.example", True),
        ("site ~ *.example and domain = example.org", True),
        ("site in a.example, b.example", False),
        ("attempts > 1 and class = mailbox", True),
        ("area = incoming", False),
    ],
)
def test_a_rule_counts_for_what_its_condition_selects(where: str, counts: bool) -> None:
    assert (found(rule("hold", where)) is not None) is counts


@pytest.mark.parametrize(
    ("destination", "site"),
    [
        ("mx.example", "mx.example"),
        ("mx.example/example.org", "mx.example"),
        ("mx.example/example.org", "mx.example/example.org"),
        ("192.0.2.1:25", "192.0.2.1:25"),
        ("relay.example:25 as joe", "relay.example:25 as joe"),
    ],
)
def test_a_site_is_a_set_of_hosts_or_a_relay(destination: str, site: str) -> None:
    assert found(rule("suspend", f'site = "{site}"'), destination=destination)


def test_a_rule_on_sites_waits_for_the_route() -> None:
    rules = rule("hold", "not site = mx.example"), rule("suspend", "domain = example.org")
    assert found(*rules, destination=None) == "suspend-1"
    assert found(*rules, destination="mx.other.example") == "hold-1"


def test_many_rules_on_names_count_as_if_asked_one_by_one() -> None:
    rules = [
        rule("suspend", "domain = Example.ORG", number=1),
        rule("hold", "site in a.example, MX.example", number=2),
        rule("slow", "domain in b.example, c.example", number=3, connections=1),
        rule("bounce", "sender = <>", number=4),
        rule("suspend", "site ~ mx.*", number=5),
    ]
    for sender in ("", "s@example.com"):
        for address in ("x@example.org", "x@b.example", "x@d.example"):
            for site in ("mx.example", "a.example", "z.example"):
                one_by_one = [
                    each.id
                    for each in sorted(rules, key=lambda each: [*RuleAction].index(each.action))
                    if found(each, destination=site, sender=sender, address=address)
                ]
                counts = found(*rules, destination=site, sender=sender, address=address)
                assert counts == next(iter(one_by_one), None)


def test_a_rule_ends_at_its_time() -> None:
    ends = rule("hold", until=NOW + HOUR)
    assert found(ends, now=NOW + HOUR - 1)
    assert not found(ends, now=NOW + HOUR)


def test_an_age_is_that_at_the_moment_of_the_question() -> None:
    rules = RuleSet([rule("hold", "age > 1h")])
    mail = recipient()
    asked = [bool(rules.find(mail, SITE, mail.envelope.received + age)) for age in (0, HOUR, HOUR + 1000, 0)]
    assert asked == [False, False, True, False]


def test_released_mail_is_exempt_from_holds_alone() -> None:
    released = amended(
        recipient(area=Area.HELD), Batch(id="release-1", action=Action.RELEASE, at=NOW, by="uid:0")
    )
    retried = amended(released, Batch(id="retry-1", action=Action.RETRY, at=NOW, by="server", until=NOW))
    for each in (released, retried):
        assert RuleSet([rule("hold")]).find(each, SITE, NOW) is None
    assert RuleSet([rule("hold"), rule("suspend")]).find(released, SITE, NOW) is not None


def test_conditions_on_sites_become_conditions_on_domains() -> None:
    where = parse_where("not site = mx.example or (site ~ b.* and sender = <>)", NOW, live=True)
    sites = {"a.example": "mx.example", "c.example": "mx.example", "b.example": "mx.other"}
    text = 'not (domain in (a.example, c.example) and route = "") or spid = 0000000000000000 and sender = <>'
    assert str(resolved(where, sites=sites)) == text
    assert parse_where(text, NOW) == resolved(where, sites=sites)


def test_the_batch_of_a_rule_leaves_mail_whose_site_is_not_known() -> None:
    where = where_of_batch(rule("hold", "not site = mx.example"), [])
    meant = resolved(where, sites={"a.example": "mx.example", "b.example": "mx.other"})
    chosen = [meant.matches(recipient(address=f"to@{name}.example")) for name in ("a", "b", "unknown")]
    assert chosen == [False, True, False]


def test_a_batch_says_what_the_rule_does() -> None:
    held = rule("hold", reason="why").batch(NOW + 5, HOUR)
    assert held == Batch(id="hold-1", action=Action.HOLD, at=NOW + 5, by="uid:0", reason="why")
    gone = rule("bounce", report=False).batch(NOW, HOUR)
    assert gone is not None
    assert (gone.until, gone.report) == (NOW + HOUR, False)
    assert rule("suspend").batch(NOW, HOUR) is None


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ({}, True),
        ({"area": Area.HELD, "due": 0}, False),
        ({"area": Area.HELD, "due": NOW + HOUR}, True),
        ({"sender": "kept@example.com"}, False),
        ({"address": "to@kept.example"}, False),
        ({"address": "to@unknown.example"}, False),
    ],
)
def test_the_batch_of_a_bounce_ends_nothing_that_is_held(changes: dict[str, Any], ends: bool) -> None:
    holds = rule("hold", "sender = kept@example.com"), rule("hold", "site = mx.kept.example", number=2)
    where = where_of_batch(rule("bounce"), [*holds, rule("suspend"), rule("bounce")])
    sites = {"example.org": "mx.example", "kept.example": "mx.kept.example"}
    meant = replace(resolved(where, sites=sites), now=NOW)
    assert parse_where(str(meant), NOW) == meant
    assert meant.matches(recipient(**changes)) is ends
