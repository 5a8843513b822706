"""Reply rules: what the settings make of replies of next hops. Pure.

`defer` and `bounce` change the outcome of the recipient that got the reply. `suspend` and `slow` are reported
as an `Effect`: the composition root makes a standing rule of it, which ends, is listed and can be cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from mqcd.config.settings import ReplyAction, ReplyRuleSettings
from mqcd.core.address import fits_name, normal_domain
from mqcd.core.selecting.pattern import fits
from mqcd.core.selecting.where_fields import site_name
from mqcd.core.smtp.classes import class_of
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.smtp.exchange import Outcome, Result


@value
class Effect:
    """What is to become of a destination."""

    rule: ReplyRuleSettings
    site: str
    """As the field of conditions names it."""
    reply: Reply
    """The cause."""


def rule_for(
    rules: Sequence[ReplyRuleSettings], reply: Reply, domain: str, destination: Destination
) -> ReplyRuleSettings | None:
    """The first rule that fits a reply to mail for `domain`, in comparable form."""
    return next((rule for rule in rules if _fits(rule, reply, domain, destination)), None)


def _fits(rule: ReplyRuleSettings, reply: Reply, domain: str, destination: Destination) -> bool:
    if rule.kind is not None and class_of(reply.code, reply.status) is not rule.kind:
        return False
    if not (fits(rule.match, str(reply)) or fits(rule.match, f"{reply.code} {reply.text}")):
        return False
    if rule.destination == "*" or fits_name(rule.destination, domain):
        return True
    hosts = (normal_domain(host) for group in destination.hosts for host in group)
    return any(fits_name(rule.destination, host) for host in hosts)


def by_rules(
    rules: Sequence[ReplyRuleSettings], outcome: Outcome, domain: str, destination: Destination
) -> tuple[Outcome, Effect | None]:
    """An outcome by the rules, and what it means for its destination.

    What the next hop has taken, or may have taken, is not bounced nor deferred anew.
    """
    if outcome.result is Result.DELIVERED or outcome.possibly_delivered:
        return outcome, None
    rule = rule_for(rules, outcome.reply, domain, destination)
    if rule is None:
        return outcome, None
    match rule.action:
        case ReplyAction.DEFER:
            return replace(outcome, result=Result.DEFERRED), None
        case ReplyAction.BOUNCE:
            return replace(outcome, result=Result.BOUNCED), None
        case ReplyAction.SUSPEND | ReplyAction.SLOW:
            return outcome, Effect(rule=rule, site=site_name(destination.name), reply=outcome.reply)
        case _:
            assert_never(rule.action)
