"""A rule as JSON: what is understood, what is refused and where."""

from __future__ import annotations

import pytest

from mqcd.core.errors import DecodeError
from mqcd.core.selecting.rules import RuleAction
from mqcd.daemon.rules.form import fields_of, parse_rule
from tests.fakes.clock import START_MS

NOW = START_MS
ASKED = {"action": "hold", "where": "sender = a@b.example"}


@pytest.mark.parametrize(
    "fields",
    [
        ASKED,
        {"action": "slow", "where": "site = mx.example", "rate": "20/1m30s", "connections": 3},
        {"action": "bounce", "where": "age > 1h", "report": False, "name": "n", "reason": "r"},
        {"action": "suspend", "where": "domain = b.example", "until": "2026-11-24T18:00:00+01:00"},
    ],
)
def test_a_rule_survives_its_form(fields: dict[str, object]) -> None:
    made = parse_rule({**fields, "by": "uid:7"}, NOW)
    assert parse_rule({**fields_of(made)}, NOW + 99_999) == made


def test_a_span_counts_from_now() -> None:
    made = parse_rule({**ASKED, "for": "2h"}, NOW)
    assert (made.until, made.at, made.action) == (NOW + 7_200_000, NOW, RuleAction.HOLD)


@pytest.mark.parametrize(
    ("until", "is_over"),
    [
        ("9999-12-31T23:59:59-01:00", False),
        ("0001-01-01T00:00:00+01:00", True),
        ("1970-01-01T00:00:00Z", True),
    ],
)
def test_an_end_far_away_is_still_one(until: str, is_over: bool) -> None:
    assert parse_rule({**ASKED, "until": until}, NOW).ended(NOW) is is_over


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"where": ""}, "where: column 1"),
        ({"where": None}, "where: expected a condition"),
        ({"where": "x" * 5000}, "where: expected at most"),
        ({"where": "colour = x"}, "where: column 1"),
        ({"action": "drop"}, "action: expected one of hold"),
        ({"until": "18:00"}, "until: expected a time"),
        ({"until": "2026-11-24T18:00:00"}, "until: expected a time"),
        ({"for": "soon"}, "for: expected"),
        ({"for": "1h", "until": "2026-11-24T18:00:00Z"}, "for: expected"),
        ({"rate": "10/s"}, "rate, connections: they are for slow"),
        ({"action": "slow"}, "slow: expected a rate"),
        ({"action": "slow", "rate": "10"}, "rate: "),
        ({"action": "slow", "connections": -1}, "slow: expected a rate"),
        ({"action": "slow", "connections": 1 << 40}, "connections: expected"),
        ({"report": True}, "report: it is for bounce"),
        ({"reason": 5}, "reason: expected str"),
        ({"color": "red"}, "no such field: color"),
        ({"id": "a b"}, "id: expected a word"),
    ],
)
def test_a_bad_field_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(DecodeError) as error:
        parse_rule({**ASKED, **fields}, NOW)
    assert str(error.value).startswith(named)
