"""The pace at which a bucket gives its entries back, and passes them to clusters."""

from __future__ import annotations

import pytest

from mqcd.queue.memory.buckets import BACK_AT_ONCE, BACK_EVERY_MS, Pace

NOW, LONG = 1000, 3_600_000


def returns(pace: Pace, count: int) -> list[int]:
    """When so many entries return, as a claim that is always there would see it."""
    times = []
    for _ in range(count):
        times.append(pace.until)
        pace.returned()
    return times


@pytest.mark.parametrize(("suspended", "every"), [(LONG, BACK_EVERY_MS), (400, 100), (2, 1)])
def test_groups_follow_at_a_quarter_of_a_short_suspension(suspended: int, every: int) -> None:
    until = NOW + suspended
    times = returns(Pace(until, NOW), 2 * BACK_AT_ONCE + 1)
    assert times == [until] * BACK_AT_ONCE + [until + every] * BACK_AT_ONCE + [until + 2 * every]


def test_a_full_group_alone_moves_the_time() -> None:
    pace = Pace(NOW + LONG, NOW)
    assert [pace.returned() for _ in range(BACK_AT_ONCE)] == [False] * (BACK_AT_ONCE - 1) + [True]


def test_what_moves_to_clusters_keeps_the_distance_of_groups() -> None:
    pace = Pace(NOW + LONG, NOW)
    dues = [pace.moved() for _ in range(BACK_AT_ONCE + 1)]
    assert dues == [NOW + LONG] * BACK_AT_ONCE + [NOW + LONG + BACK_EVERY_MS]


def test_what_moves_is_due_no_earlier_than_what_stays() -> None:
    pace = Pace(NOW + LONG, NOW)
    pace.moved()
    returns(pace, 3 * BACK_AT_ONCE)
    assert pace.moved() == pace.until == NOW + LONG + 3 * BACK_EVERY_MS


def test_hastened_entries_keep_their_groups() -> None:
    pace = Pace(NOW + LONG, NOW)
    returns(pace, BACK_AT_ONCE - 1)
    pace.hasten(NOW)
    assert pace.moved() == NOW
    assert returns(pace, 2) == [NOW, NOW + BACK_EVERY_MS]
