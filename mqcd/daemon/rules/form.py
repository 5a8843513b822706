"""A standing rule as a JSON object: in its file, in the pages of the control socket, and for commands. Pure.

Fields: `id` `action` `where` `name` `reason` `by` `at` `until` (null = until it is cancelled) `rate` and
`connections` (null but for `slow`) `report` (null but for `bounce`). Times are RFC 3339.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mqcd.config.kinds.fields import BadValue, RateKind
from mqcd.config.kinds.values import Rate
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.selecting.rules import RuleAction, StandingRule
from mqcd.core.selecting.where import parse_where
from mqcd.core.units import duration_of

MOST_TEXT = 200
"""Characters of a name or a reason that are kept."""
MOST_WHERE = 4000
"""Characters of a condition."""
_KINDS: Mapping[str, type] = {
    "id": str,
    "action": str,
    "where": str,
    "name": str,
    "reason": str,
    "by": str,
    "at": str,
    "until": str,
    "for": str,
    "rate": str,
    "connections": int,
    "report": bool,
}


def fields_of(rule: StandingRule) -> dict[str, object]:
    """The object."""
    slow, rate = rule.action is RuleAction.SLOW, rule.rate
    return {
        "id": rule.id,
        "action": rule.action.value,
        "where": str(rule.where),
        "name": rule.name,
        "reason": rule.reason,
        "by": rule.by,
        "at": format_time(rule.at),
        "until": format_time(rule.until) if rule.until else None,
        "rate": RateKind().show(Rate(count=rate[0], per=rate[1])) if rate else None,
        "connections": rule.connections if slow and rule.connections else None,
        "report": rule.report if rule.action is RuleAction.BOUNCE else None,
    }


def parse_rule(fields: Mapping[str, Any], now: int) -> StandingRule:
    """What `fields_of` made, or what a client asks for: then `at` is now, and `for` may stand in the place of
    `until`. Raises DecodeError, which names the field."""
    given = {name: value for name, value in fields.items() if value is not None}
    if unknown := given.keys() - _KINDS.keys():
        raise DecodeError(f"no such field: {min(unknown)}")
    for name, value in given.items():
        if type(value) is not _KINDS[name]:
            raise DecodeError(f"{name}: expected {_KINDS[name].__name__}")
    at = parse_time(given["at"], "at") if "at" in given else now
    rule = StandingRule(
        id=given.get("id", ""),
        action=_action(given.get("action", "")),
        where=_where(given, at),
        at=at,
        by=printable(given.get("by", ""))[:MOST_TEXT],
        name=printable(given.get("name", ""))[:MOST_TEXT],
        reason=printable(given.get("reason", ""))[:MOST_TEXT],
        until=_until(given, now),
        rate=_rate(given),
        connections=given.get("connections", 0),
        report=given.get("report", True),
    )
    _check(rule, given)
    return rule


def _where(given: Mapping[str, Any], at: int) -> Any:
    if "where" not in given:
        raise DecodeError("where: expected a condition; `age > 0s` selects all mail")
    if len(given["where"]) > MOST_WHERE:
        raise DecodeError(f"where: expected at most {MOST_WHERE} characters")
    try:
        return parse_where(given["where"], at, live=True)
    except DecodeError as error:
        raise DecodeError(f"where: {error}") from error


def _action(text: str) -> RuleAction:
    try:
        return RuleAction(text)
    except ValueError:
        raise DecodeError(f"action: expected one of {', '.join(RuleAction)}") from None


def _until(given: Mapping[str, Any], now: int) -> int:
    if "for" not in given:
        return parse_time(given["until"], "until") if "until" in given else 0
    span = duration_of(given["for"])
    if not span or "until" in given:
        raise DecodeError("for: expected a time such as 2h, and then no until")
    return now + span


def parse_time(text: str, name: str) -> int:
    """A time in the form of RFC 3339, ms; 1 for all before, as 0 is none. Raises DecodeError, which names the
    field."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise DecodeError(f"{name}: expected a time such as 2026-01-31T18:00:00Z")
    since = time - datetime.fromtimestamp(0, UTC)
    return max(since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000, 1)


def _rate(given: Mapping[str, Any]) -> tuple[int, int] | None:
    if "rate" not in given:
        return None
    try:
        rate = RateKind().parse(given["rate"])
    except BadValue as error:
        raise DecodeError(f"rate: {error}") from error
    return rate.count, rate.per


def _check(rule: StandingRule, given: Mapping[str, Any]) -> None:
    """Raises DecodeError for what has no meaning together."""
    slow = rule.action is RuleAction.SLOW
    if slow and not (rule.rate or rule.connections > 0):
        raise DecodeError("slow: expected a rate, connections or both")
    if not slow and (rule.rate or rule.connections):
        raise DecodeError("rate, connections: they are for slow")
    if not 0 <= rule.connections < 1 << 31:
        raise DecodeError("connections: expected 1 or more")
    if "report" in given and rule.action is not RuleAction.BOUNCE:
        raise DecodeError("report: it is for bounce")
    if rule.id and (not rule.id.isprintable() or " " in rule.id or "/" in rule.id):
        raise DecodeError("id: expected a word")
