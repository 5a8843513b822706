"""Names in HELO and domains of addresses: what their form refuses, and what DNS is asked."""

from __future__ import annotations

from typing import Any

import pytest

from mqcd.config.settings import Direction, ServerSettings
from mqcd.core.smtp.reply import Reply
from mqcd.submit.checks import names
from mqcd.submit.checks.names import RECIPIENT, SENDER, Lookup, NameRules, Want, name_rules

CLIENT = "192.0.2.1"


def asked(verdict: names.Verdict) -> list[tuple[Want, str]]:
    assert not isinstance(verdict, Reply), verdict
    return [(each.want, each.name) for each in verdict]


def helo(name: str, **rules: Any) -> names.Verdict:
    return names.check(NameRules(checked=True, **rules), name, names.HELO, CLIENT)


@pytest.mark.parametrize(
    "name",
    [
        "mx.example.org",
        "localhost",
        "MX.Example.Org.",
        "under_score.example",
        "[192.0.2.1]",
        "[IPv6:2001:db8::1]",
    ],
)
def test_good_names_in_helo(name: str) -> None:
    assert helo(name, syntaxonly=True) == ()


@pytest.mark.parametrize(
    "name",
    [
        "192.0.2.1",
        "a..b",
        "-a.example",
        "a b",
        "a,b",
        "[192.0.2.999]",
        "[192.0.2.1",
        "[]",
        "x" * 64,
        "a.123",
        ".",
    ],
)
def test_bad_names_in_helo(name: str) -> None:
    assert helo(name) == names.HELO_FORM


@pytest.mark.parametrize(
    ("name", "rules", "refused"),
    [
        ("localhost", {"dotted": True}, True),
        ("localhost.", {"dotted": True}, True),
        ("localhost", {"fqdn": True}, True),
        ("mx.example", {"dotted": True, "fqdn": True}, False),
        ("[192.0.2.1]", {"dotted": True}, False),
        ("[192.0.2.1]", {"fqdn": True}, True),
    ],
)
def test_names_must_be_full_where_asked(name: str, rules: dict[str, bool], refused: bool) -> None:
    verdict = helo(name, syntaxonly=True, **rules)
    assert verdict == (names.HELO_DOTTED if refused else ())


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (Direction.FORWARD, [(Want.HOST, "mx.example")]),
        (Direction.REVERSE, [(Want.CLIENT, CLIENT)]),
        (Direction.BOTH, [(Want.HOST, "mx.example"), (Want.CLIENT, CLIENT)]),
    ],
)
def test_directions(direction: Direction, expected: list[tuple[Want, str]]) -> None:
    assert asked(helo("MX.example", direction=direction)) == expected


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        (Direction.FORWARD, [(Want.MAIL, "example.org")]),
        (Direction.REVERSE, [(Want.CLIENT, CLIENT)]),
        (Direction.BOTH, [(Want.MAIL, "example.org"), (Want.CLIENT, CLIENT)]),
    ],
)
def test_directions_of_domains(direction: Direction, expected: list[tuple[Want, str]]) -> None:
    rules = NameRules(checked=True, direction=direction)
    assert asked(names.check(rules, "example.org", SENDER, CLIENT)) == expected
    assert asked(names.check(rules, "example.org", SENDER, "")) == expected[:1] * (
        direction is not Direction.REVERSE
    )


def test_an_address_literal_is_only_looked_up_in_reverse() -> None:
    assert asked(helo("[192.0.2.1]", direction=Direction.FORWARD)) == []
    assert asked(helo("[192.0.2.1]", direction=Direction.BOTH)) == [(Want.CLIENT, CLIENT)]


@pytest.mark.parametrize(
    ("name", "rules", "verdict"),
    [
        ("", {}, ()),
        ("[192.0.2.1]", {}, []),
        ("[192.0.2.1]", {"fqdn": True}, SENDER.form),
        ("localhost", {"dotted": True}, SENDER.form),
        ("example.org", {"syntaxonly": True}, ()),
    ],
)
def test_domains_without_dns(name: str, rules: dict[str, Any], verdict: names.Verdict) -> None:
    assert names.check(NameRules(checked=True, **rules), name, SENDER, CLIENT) == verdict


@pytest.mark.parametrize("allowed", [True, False])
def test_a_domain_is_asked_for_as_a_label(allowed: bool) -> None:
    verdict = names.check(NameRules(checked=True, allowtimeout=allowed), "Bücher.example", RECIPIENT, CLIENT)
    assert verdict == [
        Lookup(
            want=Want.MAIL,
            name="xn--bcher-kva.example",
            reason=RECIPIENT.reason,
            missing=RECIPIENT.missing,
            failed=None if allowed else RECIPIENT.failed,
        )
    ]


def test_rules_are_those_of_the_settings() -> None:
    settings = ServerSettings(
        validate_helo=True,
        validate_helo_direction=Direction.BOTH,
        validate_sender=True,
        validate_sender_fqdn=True,
        validate_recip_direction=Direction.REVERSE,
        validate_recip_allowtimeout=False,
    )
    assert name_rules(settings, "helo") == NameRules(checked=True, direction=Direction.BOTH)
    assert name_rules(settings, "sender") == NameRules(checked=True, fqdn=True)
    assert name_rules(settings, "recip") == NameRules(allowtimeout=False, direction=Direction.REVERSE)


@pytest.mark.parametrize("part", ["syntaxonly", "dotted", "fqdn", "allowtimeout"])
@pytest.mark.parametrize("kind", ["helo", "sender", "recip"])
def test_each_attribute_is_a_rule(kind: str, part: str) -> None:
    given: dict[str, Any] = {f"validate_{kind}_{part}": part != "allowtimeout"}
    expected: dict[str, Any] = {part: part != "allowtimeout"}
    settings = ServerSettings(**given)
    for each in ("helo", "sender", "recip"):
        assert name_rules(settings, each) == NameRules(**(expected if each == kind else {}))
