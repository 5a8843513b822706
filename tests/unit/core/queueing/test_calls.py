"""What ETRN and ATRN ask for, and who may."""

from __future__ import annotations

import pytest

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.calls import collected, parse_domains, parse_node, started
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode

ETRN, ATRN = HoldMode.ETRN, HoldMode.ATRN
HOLDING = Holding(
    domains=(
        HeldDomain("office.example", ETRN),
        HeldDomain("*.office.example", ETRN),
        HeldDomain("secret.office.example", ETRN, ("ann",)),
        HeldDomain("held.example", HoldMode.HOLD),
        HeldDomain("home.example", ATRN, ("ann", "bob")),
        HeldDomain("*.home.example", ATRN, ("bob",)),
        HeldDomain("nobody.example", ATRN),
    )
)
EVERY = [
    "office.example",
    "a.office.example",
    "secret.office.example",
    "held.example",
    "home.example",
    "x.home.example",
    "nobody.example",
]


def named(domains: str) -> list[str]:
    return [f"{name}.example" for name in domains.split()]


@pytest.mark.parametrize(
    ("argument", "node"),
    [("Office.Example", "office.example"), ("@a.example.", "@a.example"), ("#*.a.example", "#*.a.example")],
)
def test_a_node_is_read(argument: str, node: str) -> None:
    assert parse_node(argument) == node


@pytest.mark.parametrize("argument", ["", "@", "#", "two words", "a@b.example", "*.a.example", "<a>", "@*.a"])
def test_these_are_no_nodes(argument: str) -> None:
    with pytest.raises(DecodeError):
        parse_node(argument)


@pytest.mark.parametrize(
    ("argument", "domains"),
    [("", ()), ("A.example", ("a.example",)), ("a.example, b.example", ("a.example", "b.example"))],
)
def test_domains_are_read(argument: str, domains: tuple[str, ...]) -> None:
    assert parse_domains(argument) == domains


@pytest.mark.parametrize("argument", [",", "a.example,", "@a.example", "a b", "#a"])
def test_these_are_no_domains(argument: str) -> None:
    with pytest.raises(DecodeError):
        parse_domains(argument)


@pytest.mark.parametrize(
    ("node", "user", "domains"),
    [
        ("office.example", "", "office"),
        ("a.office.example", "", "a.office"),
        ("secret.office.example", "ann", "secret.office"),
        ("@office.example", "", "office a.office"),
        ("@office.example", "ann", "office a.office secret.office"),
        ("@a.office.example", "", "a.office"),
        ("@example", "", "office a.office"),
        ("#office.example", "", "office"),
        ("#*.office.example", "", "a.office"),
    ],
)
def test_a_node_starts_the_domains_it_names(node: str, user: str, domains: str) -> None:
    wanted = started(HOLDING, node, user)
    assert wanted is not None
    assert [each for each in EVERY if wanted(each)] == named(domains)


@pytest.mark.parametrize(
    "node",
    [
        "secret.office.example",
        "held.example",
        "home.example",
        "other.example",
        "@home.example",
        "#held.example",
        "#no.example",
    ],
)
def test_no_other_node_is_allowed(node: str) -> None:
    assert started(HOLDING, node, "") is None


@pytest.mark.parametrize(
    ("domains", "user", "found"),
    [
        ((), "ann", "home"),
        ((), "bob", "home x.home"),
        (("home.example",), "ann", "home"),
        (("x.home.example",), "bob", "x.home"),
    ],
)
def test_users_collect_their_own_domains(domains: tuple[str, ...], user: str, found: str) -> None:
    wanted = collected(HOLDING, domains, user)
    assert wanted is not None
    assert [each for each in EVERY if wanted(each)] == named(found)


@pytest.mark.parametrize(
    ("domains", "user"),
    [
        ((), "eve"),
        ((), ""),
        (("x.home.example",), "ann"),
        (("home.example", "nobody.example"), "ann"),
        (("office.example",), "ann"),
    ],
)
def test_nobody_collects_what_is_not_theirs(domains: tuple[str, ...], user: str) -> None:
    assert collected(HOLDING, domains, user) is None
