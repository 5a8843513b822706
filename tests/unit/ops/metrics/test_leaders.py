"""Who gets a place, who loses it, and that no counter ever goes back."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mqcd.ops.metrics.leaders import CANDIDATES, ENTRY, MARGIN, OTHER, TENURE, Leaders

DAY = 24 * TENURE


class Count:
    def __init__(self) -> None:
        self.seen = 0


def leaders(size: int) -> Leaders[Count]:
    return Leaders(size, Count)


def feed(board: Leaders[Count], name: str, times: int = 1, at: int = DAY) -> None:
    for _ in range(times):
        board.of(name, at).seen += 1


def shown(board: Leaders[Count]) -> dict[str, int]:
    return {name: count.seen for name, count in board}


def test_the_first_ones_have_figures_of_their_own_at_once() -> None:
    board = leaders(10)
    for name in ("a", "b", "a", "c"):
        feed(board, name)
    assert shown(board) == {"a": 2, "b": 1, "c": 1, OTHER: 0}


def test_half_the_places_are_for_frequent_sites() -> None:
    board = leaders(4)
    for name in ("a", "b", "c", "d"):
        feed(board, name)
    assert shown(board) == {"a": 1, "b": 1, OTHER: 2}
    feed(board, "d", ENTRY - 2)
    assert "d" not in board.names
    feed(board, "d", 2)
    assert shown(board) == {"a": 1, "b": 1, "d": 2, OTHER: 2 + ENTRY - 2}


def full(size: int = 4, each: int = 20) -> Leaders[Count]:
    board = leaders(size)
    for number in range(size):
        feed(board, f"old{number}", each)
    assert len(shown(board)) == size + 1
    return board


def test_a_place_is_kept_for_an_hour_whoever_comes() -> None:
    board = full()
    feed(board, "new", 10_000, DAY + TENURE - 1)
    assert "new" not in board.names
    feed(board, "new", 1, DAY + TENURE)
    assert "new" in board.names


def test_the_least_busy_site_yields_to_a_much_busier_one() -> None:
    board = full()
    feed(board, "old0", 100)
    feed(board, "old1", 100)
    feed(board, "old2", 100)
    before = shown(board)
    later = DAY + TENURE
    of_late = 10  # old3's, whose 20 are halved now
    feed(board, "new", of_late * MARGIN - 1, later)
    assert "new" not in board.names
    feed(board, "new", 1, later)
    after = shown(board)
    assert before.keys() - after.keys() == {"old3"}
    assert (after["new"], after[OTHER]) == (1, before[OTHER] + of_late * MARGIN - 1)


def test_who_comes_back_goes_on_where_it_stopped() -> None:
    board = full()
    told = shown(board)["old3"]
    for name in ("old0", "old1", "old2"):
        feed(board, name, 100)
    feed(board, "new", 1000, DAY + TENURE)
    assert "old3" not in board.names
    # Its events without a place are the others'; it comes back in the stead of another.
    feed(board, "old3", 5000, DAY + 3 * TENURE)
    assert shown(board)["old3"] > told


def test_a_name_that_is_called_other_is_one_of_the_others() -> None:
    board = leaders(4)
    feed(board, OTHER, 50)
    assert shown(board) == {OTHER: 50}


def test_no_places_at_all() -> None:
    board = leaders(0)
    feed(board, "a", 50)
    assert shown(board) == {OTHER: 50}


def test_a_clock_that_goes_back_costs_nobody_anything() -> None:
    board = full()
    feed(board, "new", 1000)
    feed(board, "new", 10_000, DAY - 5 * TENURE)
    assert len(shown(board)) == 5
    feed(board, "new", 1000, DAY - 4 * TENURE)
    assert "new" in board.names, "an hour after the clock went back places change hands again"


class Watch:
    """Looks at a page as Prometheus does, again and again."""

    def __init__(self, board: Leaders[Count]) -> None:
        self._board = board
        self._last: dict[str, tuple[int, int]] = {}
        self.returned = 0
        self.increase: Counter[str] = Counter()

    def scrape(self, at: int, *, remembered_for: int) -> None:
        page = shown(self._board)
        gone = {name for name in self._last if name not in page}
        for name, value in page.items():
            seen, before = self._last.get(name, (at, 0))
            if at - seen <= remembered_for:
                assert value >= before, f"{name} went from {before} to {value}"
                self.increase[name] += value - before
            self.returned += name in self._last and at - seen > MINUTE
            self._last[name] = (at, value)
        assert OTHER not in gone


MINUTE = 60_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counters_never_fall_or_double_under_churn(seed: int) -> None:
    """Two days of mail whose favourites change every few hours, with a flood of strangers in between."""
    chance = random.Random(seed)
    board = leaders(8)
    watch = Watch(board)
    sent = 0
    favourites: list[str] = []
    changes = 0
    before: set[str] = set()
    for minute in range(2 * 24 * 60):
        at = DAY + minute * MINUTE
        board.tick(at)
        if minute % 180 == 0:
            favourites = [f"site{chance.randrange(30)}" for _ in range(6)]
        for _ in range(40):
            name = (
                chance.choice(favourites) if chance.random() < 0.7 else f"stranger{chance.randrange(10**9)}"
            )
            board.of(name, at).seen += 1
            sent += 1
        watch.scrape(at, remembered_for=4 * TENURE)
        now = set(shown(board))
        changes += len(before - now)
        before = now
        assert len(now) <= 9
    assert sum(watch.increase.values()) <= sent
    assert sum(watch.increase.values()) > sent * 0.99, (
        "but for what a series counted before it was first seen"
    )
    assert changes >= 10, "places did change hands"
    assert watch.returned, "and somebody came back"


def test_the_busiest_are_told_apart_from_a_crowd() -> None:
    """Each of ten sends two in a hundred, among strangers: all have places after two hours."""
    chance = random.Random(7)
    board = leaders(20)
    for event in range(60_000):
        at = DAY + event * 200
        name = (
            f"busy{chance.randrange(10)}" if chance.random() < 0.2 else f"stranger{chance.randrange(10**9)}"
        )
        feed(board, name, 1, at)
    assert {f"busy{number}" for number in range(10)} <= set(shown(board))


def test_a_million_domains_take_no_more_memory_than_a_thousand() -> None:
    board = leaders(50)
    feed(board, "busy", 1000)
    most = 0
    for number in range(1_000_000):
        board.of(f"domain{number}.example", DAY + number * 10).seen += 1
        if not number % 1000:
            most = max(most, board.remembered)
    assert most <= 50 * (1 + 2 * CANDIDATES)
    page = shown(board)
    assert len(page) <= 51
    assert page["busy"] == 1000
    assert sum(page.values()) >= 1_001_000 - 50 * CANDIDATES, "all others were counted together"
