"""Token buckets: what they let go, whom they send away, and that no stretch of time sees too many."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mqcd.config.settings import Rate
from mqcd.deliver.lanes.rates import HOLD_MS, LONGEST_MS, Limit, Limits, Scope

SECOND, HOUR, WEEK = 1000, 3_600_000, 7 * 24 * 3_600_000
RATES = st.builds(
    Rate, count=st.integers(1, 5000), per=st.sampled_from([SECOND, 90 * SECOND, HOUR, 24 * HOUR])
)


@pytest.mark.parametrize(
    ("rate", "burst"),
    [
        (Rate(count=10, per=SECOND), 10),
        (Rate(count=500, per=HOUR), 1),
        (Rate(count=6000, per=HOUR), 16),
        (Rate(count=1, per=24 * HOUR), 1),
    ],
)
def test_the_burst_is_what_ten_seconds_give_or_the_time_named(rate: Rate, burst: int) -> None:
    limit = Limit(Scope.LANE, rate)
    assert limit.burst == burst
    assert limit.wait(burst, 0) == 0
    assert limit.wait(burst + 1, 0) > 0


def test_tokens_come_one_by_one_and_exactly() -> None:
    limit = Limit(Scope.LANE, Rate(count=3, per=SECOND))
    limit.take(3, 0)
    assert [limit.wait(n, 0) for n in (1, 2, 3)] == [334, 667, 1000]
    assert limit.wait(1, 333) == 1
    assert limit.wait(1, 334) == 0


@settings(max_examples=200)
@given(rate=RATES, steps=st.lists(st.tuples(st.integers(0, HOUR), st.integers(1, 20)), max_size=150))
def test_no_stretch_of_time_sees_more_than_rate_and_burst(rate: Rate, steps: list[tuple[int, int]]) -> None:
    limit = Limit(Scope.LANE, rate)
    now, gone = 0, []
    for wait, wanted in steps:
        now += wait
        size = min(wanted, limit.burst)
        if not limit.wait(size, now):
            limit.take(size, now)
            gone.append((now, size))
    for first, (start, _) in enumerate(gone):
        total = 0
        for at, size in gone[first:]:
            total += size
            assert (total - limit.burst) * rate.per <= (at - start) * rate.count


@settings(max_examples=100)
@given(rate=RATES, now=st.integers(0, 4 * WEEK), size=st.integers(1, 20))
def test_who_waits_as_long_as_told_goes(rate: Rate, now: int, size: int) -> None:
    limit = Limit(Scope.LANE, rate)
    limit.take(limit.burst, now)
    size = min(size, limit.burst)
    wait = limit.wait(size, now)
    assert limit.wait(size, now + wait - 1) > 0
    assert limit.wait(size, now + wait) == 0


def test_long_waits_are_parked_until_shortly_before_their_turn() -> None:
    limit = Limit(Scope.LANE, Rate(count=1, per=SECOND))
    limit.take(limit.burst, 0)
    inside, outside = 0, []
    for _ in range(100):
        after = limit.book(0, 1000, been_outside=False)
        if after:
            outside.append(after)
        else:
            limit.held += 1
            inside += 1
    assert inside == HOLD_MS // SECOND
    # One a second, each some seconds before its turn, in the order in which they came.
    turns = [(inside + 1 + number) * SECOND for number in range(len(outside))]
    assert outside == [max(turn - HOLD_MS // 2, SECOND) for turn in turns]


def test_nobody_is_sent_away_for_longer_than_an_hour() -> None:
    limit = Limit(Scope.LANE, Rate(count=1, per=24 * HOUR))
    limit.take(1, 0)
    assert [limit.book(0, 1000, been_outside=False) for _ in range(3)] == [LONGEST_MS] * 3


def test_newcomers_do_not_pass_those_who_wait_outside() -> None:
    limit = Limit(Scope.LANE, Rate(count=1, per=SECOND))
    limit.take(limit.burst, 0)
    limit.held = 30
    assert limit.book(0, 1000, been_outside=False) > HOLD_MS
    limit.held = 0
    assert limit.book(0, 1000, been_outside=False) > HOLD_MS
    assert limit.book(0, 1000, been_outside=True) == 0


def test_no_more_wait_inside_than_there_is_room_for() -> None:
    limit = Limit(Scope.LANE, Rate(count=1000, per=SECOND))
    limit.held = 50
    assert limit.book(0, 50, been_outside=True) > 0
    assert limit.book(0, 51, been_outside=True) == 0


def test_another_rate_keeps_what_is_used_up() -> None:
    limits = Limits()
    limits.rebind({"bulk": Rate(count=10, per=SECOND)}, {}, 0)
    bulk = limits.zones["bulk"]
    bulk.take(10, 0)
    limits.rebind({"bulk": Rate(count=20, per=SECOND)}, {}, 0)
    assert limits.zones["bulk"] is bulk
    assert bulk.wait(1, 0) == 50
    limits.rebind({}, {}, 0)
    assert limits.zones == {}


def test_a_whole_address_goes_before_its_domain() -> None:
    limits = Limits()
    slow, slower = Rate(count=2, per=SECOND), Rate(count=1, per=SECOND)
    limits.rebind({}, {"Example.ORG": slow, "News@example.org": slower, "<>": slow}, 0)

    def rate_of(sender: str) -> Rate | None:
        limit = limits.of_sender(sender)
        return limit.rate if limit else None

    assert rate_of("news@Example.org") == slower
    assert rate_of("other@example.org") == slow
    assert rate_of("") == slow
    assert rate_of("a@sub.example.org") is None


def test_a_limit_that_is_full_again_may_be_forgotten() -> None:
    limit = Limit(Scope.LANE, Rate(count=1, per=SECOND))
    assert limit.is_full(0)
    limit.take(1, 0)
    assert not limit.is_full(999)
    assert limit.is_full(1000)
    limit.held = 1
    assert not limit.is_full(2000)
