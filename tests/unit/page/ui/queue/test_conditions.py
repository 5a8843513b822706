"""Conditions in the box: what is wrong with one, and what may come next."""

from __future__ import annotations

import pytest

from mqcd.core.selecting.where import parse_where
from mqcd.page.ui.queue.conditions import of_picked, problem, suggestions

KNOWN = {"domain": ["example.org", "other.test"]}


def offered(text: str) -> list[str]:
    return [each.text for each in suggestions(text, len(text), KNOWN)]


def test_an_empty_condition_selects_all() -> None:
    assert problem("", 0) is None


def test_a_problem_names_its_column() -> None:
    found = problem("domain = x and agee > 2h", 0)
    assert found is not None
    assert found.column == 16
    assert "agee" in found.text


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("", "recipient"),
        ("dom", "domain"),
        ("domain ", "="),
        ("age ", ">"),
        ("area = ", "held"),
        ("area = he", "held"),
        ("area in (held, ", "deferred"),
        ("domain = ex", "example.org"),
        ("domain = x ", "and"),
        ("domain = x and ", "sender"),
        ("(domain = x or not ", "area"),
        ("domain = x) ", "or"),
    ],
)
def test_what_may_come_next_is_offered(text: str, some: str) -> None:
    assert some in offered(text)


def test_only_what_fits_is_offered() -> None:
    assert "and" not in offered("domain ")
    assert "~" not in offered("age ")
    assert "example.org" not in offered("area = ")
    assert offered("nosuch ") == []


def test_what_begins_so_comes_first() -> None:
    assert offered("s")[0].startswith("s")
    assert "class" in offered("s")


def test_the_word_at_the_cursor_is_replaced() -> None:
    [first, *_] = suggestions("domain = x and sen and age > 1h", 18, {})
    assert (first.text, first.start) == ("sender", 15)


@pytest.mark.parametrize("text", ["'", '"', "(((", "= = =", "domain in ,", "not not", "\x00", "a" * 9000])
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(suggestions(text, len(text), KNOWN), list)
    assert problem(text, 0) is not None


def test_picked_rows_are_a_condition() -> None:
    one = of_picked(["1956FFCEA7800004 a@x.test"])
    several = of_picked(["1956FFCEA7800004 a@x.test", '1956FFCEA7800005 "q (\\" r"@x.test'])
    assert parse_where(one, 0) != parse_where(several, 0)
