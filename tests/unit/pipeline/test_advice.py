"""What sums say of sites, and what the model of outages says of schedules: no Spark."""

from __future__ import annotations

import pytest

from mqcd.core.schedule import RetrySchedule
from mqcd.pipeline.advice.decisions import (
    DAY,
    HOUR,
    MINUTE,
    Limit,
    Said,
    Step,
    advised_count,
    best_limit,
    connection_limit,
    delays_from,
    first_delay,
    rate_limit,
)
from mqcd.pipeline.advice.replay import Case, Outcome, replay

# ---------------------------------------------------------------- limits


def test_a_limit_of_connections_parts_those_taken_from_those_put_off() -> None:
    assert connection_limit({0: (50, 0), 1: (20, 0), 2: (9, 0), 3: (0, 4), 4: (0, 2)}) == Limit(
        value=3, doubt=0.0
    )


def test_of_limits_as_good_the_one_that_was_seen_to_be_taken_counts() -> None:
    found = connection_limit({0: (50, 0), 1: (20, 0), 7: (0, 4)})
    assert found is not None
    assert found.value == 2


@pytest.mark.parametrize("seen", [{}, {0: (5, 0)}, {3: (0, 9)}])
def test_without_both_kinds_there_is_no_limit(seen: dict[int, tuple[int, int]]) -> None:
    assert connection_limit(seen) is None


def test_a_site_that_puts_off_whatever_there_is_has_no_limit() -> None:
    """The same share at every number of connections, and in minutes with and without much mail."""
    evenly = dict.fromkeys(range(5), (10, 10))
    assert best_limit(evenly, evenly, evenly) is None


def test_a_rate_is_what_was_taken_when_more_was_refused() -> None:
    seen = {1: (40, 0), 10: (12, 0), 29: (3, 1), 30: (2, 8), 31: (0, 1)}
    assert rate_limit(seen, MINUTE) == Limit(value=30, per=MINUTE, doubt=0.0)
    assert advised_count(Limit(value=30, per=MINUTE, doubt=0.0)) == 25
    assert advised_count(Limit(value=1, per=MINUTE, doubt=0.0)) == 1
    assert advised_count(Limit(value=3, doubt=0.0)) == 3


def test_a_rate_below_which_others_are_taken_is_none() -> None:
    """Half of the times without a refusal went beyond it: something else is refused."""
    found = rate_limit({5: (10, 6), 50: (10, 0)}, MINUTE)
    assert found is not None
    assert found.doubt == 0.25
    assert rate_limit({0: (0, 9)}, MINUTE) is None


def test_the_limit_that_explains_more_is_chosen() -> None:
    by_connections = {0: (50, 0), 1: (20, 0), 2: (0, 6)}
    by_minute = {1: (30, 2), 2: (10, 2), 9: (3, 2)}
    found = best_limit(by_connections, by_minute, {})
    assert found is not None
    assert (found.value, found.per) == (2, 0)


def test_what_the_replies_speak_of_goes_before_a_better_fit() -> None:
    by_connections = {0: (50, 0), 1: (20, 1), 2: (0, 6)}
    by_minute = {1: (30, 0), 5: (10, 4)}
    for said, limit in (
        (Said.CONNECTIONS, (2, 0)),
        (Said.RATE, (5, MINUTE)),
        (Said.NEITHER, (5, MINUTE)),
    ):
        found = best_limit(by_connections, by_minute, {}, said=said)
        assert found is not None
        assert (found.value, found.per) == limit


# ---------------------------------------------------------------- retry delays


def step(begin: int, retries: int, taken: int) -> Step:
    return Step(begin=begin, retries=retries, taken=taken)


def test_the_first_retry_waits_until_one_succeeds() -> None:
    curve = [step(15 * MINUTE, 40, 1), step(45 * MINUTE, 39, 2), step(165 * MINUTE + 1, 37, 36)]
    assert first_delay(curve) == (166 * MINUTE, 79)


@pytest.mark.parametrize(
    "curve",
    [
        [step(15 * MINUTE, 40, 38)],
        [step(15 * MINUTE, 40, 8), step(45 * MINUTE, 32, 30)],
        [step(15 * MINUTE, 40, 0), step(45 * MINUTE, 40, 10)],
        [],
    ],
)
def test_retries_that_sometimes_succeed_stay(curve: list[Step]) -> None:
    assert first_delay(curve) is None


def test_later_retries_are_as_late_as_before() -> None:
    in_force = (15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR)
    assert delays_from(45 * MINUTE, in_force) == (45 * MINUTE, 2 * HOUR, 4 * HOUR)
    assert delays_from(HOUR, in_force) == (HOUR, 105 * MINUTE, 4 * HOUR)
    assert delays_from(DAY, in_force) == (DAY, 4 * HOUR)


# ---------------------------------------------------------------- replay

OUTAGE = [10 * HOUR], [12 * HOUR]


def schedule(*minutes: int, jitter: float = 0.0) -> RetrySchedule:
    return RetrySchedule(
        delays=tuple(each * MINUTE for each in minutes), maxtime=2 * DAY, maxtime_reports=DAY, jitter=jitter
    )


def case(first: int, limit: int = 3 * DAY, end: int = 9 * DAY) -> Case:
    return Case(spid=1 << 40, qid=1, first=first, limit=limit, end=end)


def test_who_is_tried_outside_of_an_outage_gets_through_at_once() -> None:
    for first in (10 * HOUR - 1, 12 * HOUR):
        assert replay(case(first), *OUTAGE, schedule(30)) == Outcome(attempts=1, through=first)


def test_who_is_tried_in_one_gets_through_by_the_first_retry_after_it() -> None:
    first = 10 * HOUR
    assert replay(case(first), *OUTAGE, schedule(15, 30, 120)) == Outcome(
        attempts=4, through=12 * HOUR + 45 * MINUTE
    )
    assert replay(case(first), *OUTAGE, schedule(10)) == Outcome(attempts=13, through=12 * HOUR)
    assert replay(case(first), [10 * HOUR, 13 * HOUR], [12 * HOUR, 14 * HOUR], schedule(190)) == Outcome(
        attempts=3, through=first + 380 * MINUTE
    )


def test_the_last_attempt_comes_at_the_age_limit() -> None:
    assert replay(case(10 * HOUR, limit=11 * HOUR), *OUTAGE, schedule(40)) == Outcome(attempts=3, through=0)
    assert replay(case(10 * HOUR, limit=10 * HOUR), *OUTAGE, schedule(40)) == Outcome(attempts=1, through=0)


def test_what_the_record_does_not_reach_is_not_counted() -> None:
    assert replay(case(10 * HOUR, end=11 * HOUR), *OUTAGE, schedule(40)) == Outcome(attempts=2, through=0)


def test_jitter_is_the_servers_own() -> None:
    jittered = schedule(30, jitter=0.1)
    one = replay(case(11 * HOUR + 45 * MINUTE), *OUTAGE, jittered)
    assert one.through == 11 * HOUR + 45 * MINUTE + jittered.delay_of(1 << 40, 1, 1)
