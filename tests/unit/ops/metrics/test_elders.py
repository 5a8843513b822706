"""Whose mail is known to be old."""

from __future__ import annotations

from mqcd.ops.metrics.breakdown import MOST, SLACK_MS, Elders


def test_the_oldest_that_was_put_off_counts() -> None:
    elders = Elders()
    elders.put_off("a", (2, 1), 500, 10_000)
    elders.put_off("a", (4, 1), 300, 10_000)
    elders.put_off("a", (6, 1), 400, 10_000)
    elders.put_off("b", (8, 1), 900, 10_000)
    assert elders.oldest(5000) == {"a": 300, "b": 900}


def test_who_has_ended_counts_no_longer() -> None:
    elders = Elders()
    elders.put_off("a", (2, 1), 300, 10_000)
    elders.ended("a", (4, 1))
    elders.ended("b", (2, 1))
    assert elders.oldest(5000) == {"a": 300}
    elders.ended("a", (2, 1))
    assert elders.oldest(5000) == {}
    elders.put_off("a", (4, 1), 400, 10_000)
    assert elders.oldest(5000) == {"a": 400}, "the next one is known from its next attempt on"


def test_recipients_without_news_are_forgotten() -> None:
    elders = Elders()
    elders.put_off("a", (2, 1), 300, 10_000)
    elders.put_off("a", (2, 1), 300, 20_000)
    assert elders.oldest(20_000 + SLACK_MS - 1) == {"a": 300}
    assert elders.oldest(20_000 + SLACK_MS) == {}


def test_destinations_with_the_oldest_mail_stay_listed() -> None:
    elders = Elders()
    for number in range(100_000):
        elders.put_off(f"site{number}", (number, 1), 1_000_000 - number, 2_000_000)
    known = elders.oldest(0)
    assert len(known) <= 2 * MOST
    assert min(known.values()) == 1_000_000 - 99_999
