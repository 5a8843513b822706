"""What docs/scheduling.md claims, on a smaller scale."""

from __future__ import annotations

import pytest

from tests.bench.scheduling_experiments import fairness, order, rates, recovery, window


def test_failing_destinations_do_not_slow_the_others() -> None:
    rows = {(row[0], row[1]): row for row in fairness(queued=3000, seconds=60)}
    _, _, _, alone, _, _ = rows["none", "lanes"]
    for (trouble, kind), (_, _, _, most, lost, _) in rows.items():
        if kind == "lanes":
            assert lost == 0, trouble
            assert isinstance(most, int)
            assert isinstance(alone, int)
            assert isinstance(lost, int)
            assert most <= 1.5 * alone, trouble
    # The experiment is one: without lanes the same trouble does show.
    assert rows["one that never answers", "plain queue"][4] != 0


def test_windows_find_what_servers_take() -> None:
    found = {str(row[0]): row for row in window(marks=(5, 30))}
    assert found["2 at once"][2] == 7
    assert found["8 connections, 421 to others"][2:] == (8, "159", 1)


@pytest.mark.slow
def test_rates_recovery_and_order() -> None:
    assert [row[1] for row in rates(queued=500)] == [10, 16, 1]
    tried = {(row[0], row[1]): row[2] for row in recovery(queued=500, hours=2)}
    lanes, plain = tried["refuses", "lanes"], tried["refuses", "plain queue"]
    assert isinstance(lanes, int)
    assert isinstance(plain, int)
    assert lanes * 20 < plain
    turns, arrival = order(each=50)
    assert isinstance(arrival[1], int)
    assert isinstance(turns[1], int)
    assert arrival[1] * 2 < turns[1]
