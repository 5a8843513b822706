"""What sums say of sites, and what the model of outages says of schedules: no Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from mqcd.config.advice import Advice, Shaping, shaping_id
from mqcd.config.settings import Rate, TlsPolicy
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.lanes import outside
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.window import START_WINDOW
from mqcd.deliver.routing.policy import Policy, hop
from mqcd.deliver.routing.routing import Destination
from mqcd.pipeline.advice.decisions import (
    DAY,
    HOUR,
    MINUTE,
    Limit,
    Rules,
    Said,
    Step,
    advised_rate,
    best_limit,
    connection_limit,
    delays_from,
    first_delay,
    rate_limit,
)
from mqcd.pipeline.advice.making import Basis, Found, together
from mqcd.pipeline.advice.replay import AT_ONCE, FIRST_PROBE_MS, Mail, Outage, Outcome, replay
from tests.fakes.world import START_MS as WORLD_MS
from tests.fakes.world import Server, World

# ---------------------------------------------------------------- limits


def test_a_connection_limit_splits_accepted_from_deferred() -> None:
    assert connection_limit({0: (50, 0), 1: (20, 0), 2: (9, 0), 3: (0, 4), 4: (0, 2)}) == Limit(
        value=3, doubt=0.0
    )


def test_of_equal_limits_the_observed_one_counts() -> None:
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
    assert advised_rate(Limit(value=30, per=MINUTE, doubt=0.0)) == Rate(count=25, per=MINUTE)


@pytest.mark.parametrize(
    ("value", "per", "rate"),
    [
        (2, MINUTE, Rate(count=102, per=HOUR)),
        (4, HOUR, Rate(count=81, per=DAY)),
        (20, HOUR, Rate(count=17, per=HOUR)),
    ],
)
def test_a_small_rate_is_reported_for_a_longer_time(value: int, per: int, rate: Rate) -> None:
    """1 a minute would be half of what was found."""
    assert advised_rate(Limit(value=value, per=per, doubt=0.0)) == rate


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


def step(begin: int, retries: int, taken: int, end: int = 0) -> Step:
    return Step(begin=begin, end=end, retries=retries, taken=taken)


def test_the_first_retry_waits_until_one_succeeds() -> None:
    curve = [step(15 * MINUTE, 40, 1), step(45 * MINUTE, 39, 2), step(165 * MINUTE + 1, 37, 36)]
    found = first_delay(curve)
    assert found is not None
    assert (found.vain, found.works, found.probe) == (45 * MINUTE, 166 * MINUTE, 87 * MINUTE)
    assert (found.sooner.retries, found.sooner.taken) == (79, 3)


def test_a_narrow_gap_needs_no_probe() -> None:
    curve = [step(45 * MINUTE, 39, 0, end=50 * MINUTE), step(60 * MINUTE, 37, 36)]
    found = first_delay(curve)
    assert found is not None
    assert (found.vain, found.works, found.probe) == (50 * MINUTE, 60 * MINUTE, 0)


def test_probes_narrow_the_gap_until_it_is_known() -> None:
    """Of a site that takes mail after an hour and never before."""
    takes, vain, works, probes = 60 * MINUTE, 15 * MINUTE, 4 * HOUR, 0
    while found := first_delay([step(vain, 40, 0), step(works, 40, 40)]):
        if not found.probe:
            break
        probes += 1
        vain, works = (vain, found.probe) if found.probe >= takes else (found.probe, works)
    assert vain < takes <= works < 1.5 * vain
    assert probes <= 4


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
    probed = (45 * MINUTE, HOUR - 15 * MINUTE, 75 * MINUTE, 4 * HOUR)
    assert delays_from(90 * MINUTE, in_force, probe=45 * MINUTE) == probed


# ---------------------------------------------------------------- what is in effect


NOW = 100 * DAY
RULES = Rules()


def active(match: str, until: int, **told: Any) -> Shaping:
    values: dict[str, Any] = {
        "id": shaping_id(match),
        "reason": "asked for less",
        "since": NOW - 5 * DAY,
        "until": until,
    }
    return Shaping(match=match, **values | told)


def of_site(site: str, **told: Any) -> Found:
    return Found(site=site, **{"reason": "why", "evidence": "how often"} | told)


def proposed(found: list[Found], *pieces: Shaping) -> tuple[Shaping, ...]:
    delays = (15 * MINUTE, HOUR)
    return together(found, Basis(now=NOW, delays=delays, active=Advice(shapings=pieces), rules=RULES))


def test_repeated_advice_keeps_its_first_beginning() -> None:
    """Not twice, and with what is found now in place of what was."""
    before = active("mx1.a.example", NOW + DAY, maxserverconnections=9)
    found = [of_site("mx1.a.example+2-0123", limit=Limit(value=3, doubt=0.0))]
    (piece,) = proposed(found, before)
    assert (piece.id, piece.since, piece.until) == (before.id, before.since, NOW + RULES.shaped)
    assert piece.maxserverconnections == 3


def test_advice_in_effect_stays_until_its_end() -> None:
    """It may be why nothing is found."""
    stays, ended = active("a.example", NOW + 1, rate=Rate(count=5, per=HOUR)), active("b.example", NOW)
    assert proposed([], stays, ended) == (stays,)


def test_all_that_is_found_of_a_site_is_one_piece() -> None:
    found = [
        of_site("mx.a.example", limit=Limit(value=40, per=MINUTE, doubt=0.1), reason="too fast"),
        of_site("mx.a.example+3-89ab", delays=(HOUR, 4 * HOUR), reason="greylists"),
        of_site("[192.0.2.1]", limit=Limit(value=2, doubt=0.0)),
    ]
    (piece,) = proposed(found)
    assert (piece.match, piece.rate, piece.retry_delays) == (
        "mx.a.example",
        Rate(count=34, per=MINUTE),
        (HOUR, 4 * HOUR),
    )
    assert (piece.reason, piece.evidence, piece.since) == ("too fast; greylists", "how often", NOW)


# ---------------------------------------------------------------- replay

OUTAGE = (Outage(begin=10 * HOUR, end=12 * HOUR),)


def schedule(*minutes: int) -> RetrySchedule:
    return RetrySchedule(
        delays=tuple(each * MINUTE for each in minutes), maxtime=2 * DAY, maxtime_reports=DAY
    )


def mail(*firsts: int, limit: int = 3 * DAY, tried: int = 0) -> Mail:
    made = Mail()
    for number, first in enumerate(firsts):
        made.add(spid=(1 << 40) + number, qid=1, first=first, limit=limit, tried=tried)
    return made


def through(*waits: int, attempts: int) -> Outcome:
    return Outcome(attempts=attempts, through=len(waits), wait=sum(waits))


def test_who_is_tried_outside_of_an_outage_gets_through_at_once() -> None:
    for first in (10 * HOUR - 1, 12 * HOUR):
        assert replay(mail(first), OUTAGE, schedule(30), 9 * DAY) == through(0, attempts=1)


def test_who_is_alone_is_the_probe_each_time() -> None:
    first = 10 * HOUR
    by_minutes = {(15, 30, 120): (12, 120), (10,): (16, 125), (190,): (8, 127)}
    for minutes, (attempts, waited) in by_minutes.items():
        found = replay(mail(first), OUTAGE, schedule(*minutes), 9 * DAY)
        assert found == through(waited * MINUTE, attempts=attempts)
    twice = (*OUTAGE, Outage(begin=12 * HOUR + 5 * MINUTE, end=14 * HOUR))
    assert replay(mail(first), twice, schedule(190), 9 * DAY) == through(255 * MINUTE, attempts=9)
    # That it was put off before, for another reason, makes no difference.
    late = replay(mail(first, tried=2), OUTAGE, schedule(5, 10, 130), 9 * DAY)
    assert late == through(122 * MINUTE, attempts=27)


def test_one_suspect_is_tried_at_a_time() -> None:
    """Probes 1, 3, 7, 15 minutes after the first failure, then every 15: the first after the end at 120."""
    many = mail(*(10 * HOUR + number * 1000 for number in range(500)))
    found = replay(many, OUTAGE, schedule(15, 15), 9 * DAY)
    waits = (2 * HOUR - number * 1000 for number in range(500))
    assert found == through(*waits, attempts=1 + 4 + 6 + 500)


def test_a_silent_server_is_dead_after_several_attempts() -> None:
    silent = (Outage(begin=10 * HOUR, end=10 * HOUR + 3 * MINUTE, took=MINUTE),)
    many = mail(*(10 * HOUR + number * 1000 for number in range(20)))
    found = replay(many, silent, schedule(15), 9 * DAY)
    # Five at once, told after a minute; a probe a minute later, told after another; two later the next.
    waits = (5 * MINUTE - number * 1000 for number in range(20))
    assert found == through(*waits, attempts=5 + 1 + 20)


def test_who_is_too_old_is_given_up_with_a_probe_and_not_tried() -> None:
    few = mail(10 * HOUR, limit=11 * HOUR)
    assert replay(few, OUTAGE, schedule(40), 9 * DAY) == Outcome(attempts=7, through=0, wait=HOUR)
    assert replay(mail(10 * HOUR, limit=10 * HOUR), OUTAGE, schedule(40), 9 * DAY).attempts == 1
    two = mail(10 * HOUR, 10 * HOUR + 1, limit=11 * HOUR)
    found = replay(two, OUTAGE, schedule(40), 9 * DAY)
    assert (found.through, found.wait) == (0, 2 * HOUR - 1)
    assert found.attempts <= 8


def test_what_the_record_does_not_reach_is_not_counted() -> None:
    found = replay(mail(10 * HOUR), OUTAGE, schedule(40), 11 * HOUR)
    assert found == Outcome(attempts=6, through=0, wait=HOUR)


def test_the_model_has_the_numbers_of_the_server() -> None:
    assert (FIRST_PROBE_MS, AT_ONCE) == (outside.FIRST_PROBE_MS, START_WINDOW)


@pytest.mark.parametrize(
    ("delays", "hours", "every", "takes"),
    [
        ((15, 30, 120), 5, 5 * MINUTE, 20),
        ((5, 30, 120), 5, 30_000, 20),
        ((1, 10), 2, MINUTE, 20),
        ((15, 30, 120), 8, 45 * MINUTE, 20),
        ((60, 240), 14, 2 * MINUTE, 20),
        ((15, 30, 120), 5, 20_000, MINUTE),
    ],
)
def test_it_is_what_the_servers_own_lanes_do(
    delays: tuple[int, ...], hours: int, every: int, takes: int
) -> None:
    """The lane table of the server in a simulated world: the same mail, the same outage."""
    times = RetrySchedule(
        delays=tuple(each * MINUTE for each in delays), maxtime=10 * HOUR, maxtime_reports=DAY
    )
    policy = Policy(schedule=times, helo="me.example", tls=TlsPolicy.MAY, connections=20)
    way = hop(Destination(name="d.example", hosts=(("d.example",),), port=25), policy, sole=True)
    begin, end = HOUR, (1 + hours) * HOUR
    server = Server(dead=lambda now: begin <= now < end, fail_ms=takes)
    world = World(
        Bounds(queuecache=10_000, maxconnections=1000, maxrecips=50), lambda _: way, {"d.example": server}
    )
    sent = range(begin + 1, end, every)
    for at in sent:
        world.at(at, partial(world.send, "d.example"))
    world.run(end + 11 * HOUR)

    met = Mail()
    for number, at in enumerate(sent, 1):
        met.add(spid=2 * number, qid=1, first=at, limit=at + times.maxtime)
    found = replay(met, (Outage(begin=begin, end=end, took=takes),), times, end + 11 * HOUR)

    tried = sum(len(each.recipients) for each in world.attempts)
    ends = {each.recipient.spid: each for each in world.ended}
    got = [each for each in ends.values() if each.how == "delivered"]
    waits = sum(each.at + WORLD_MS - each.recipient.envelope.received for each in got)
    waits += (len(met) - len(got)) * times.maxtime
    assert len(ends) == len(met)
    # At an age limit a second decides whether somebody is judged or is the probe that gets through.
    assert (found.attempts, found.through) == pytest.approx((tried, len(got)), abs=1)
    assert found.wait == pytest.approx(waits, rel=0.02)
