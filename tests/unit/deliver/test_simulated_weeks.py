"""The lane table over simulated weeks: rates, ages, recovery, order; see tests/fakes/world.py."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqcd.config.settings import Rate, TlsPolicy
from mqcd.core.model import Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.lanes.lane import Bounds
from mqcd.deliver.lanes.outside import PROBE_GRACE_MS
from mqcd.deliver.lanes.rates import Limit, Scope
from mqcd.deliver.patrol import PATROL_MS
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination
from mqcd.deliver.verdicts import grace
from tests.fakes.world import START_MS, Ended, Server, Tried, World

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
SCHEDULE = RetrySchedule(
    delays=(15 * MINUTE, 30 * MINUTE, 2 * HOUR, 4 * HOUR), maxtime=3 * DAY, maxtime_reports=DAY
)


def bounds(
    queuecache: int = 500,
    maxconnections: int = 1000,
    zones: dict[str, Rate] | None = None,
    senders: dict[str, Rate] | None = None,
) -> Bounds:
    return Bounds(
        queuecache=queuecache,
        maxconnections=maxconnections,
        maxrecips=50,
        zone_rates=zones or {},
        sender_rates=senders or {},
    )


class Map:
    """Every domain is its own destination; the envelope's zone is the zone, one for each domain or none."""

    def __init__(self, **rates: Rate | None) -> None:
        self._rates = {name.replace("_", "."): rate for name, rate in rates.items()}
        self._hops: dict[tuple[str, str], Hop] = {}

    def __call__(self, recipient: Recipient) -> Hop:
        key = recipient.domain, recipient.envelope.zone
        if key not in self._hops:
            policy = Policy(
                schedule=SCHEDULE,
                helo="me.example",
                tls=TlsPolicy.MAY,
                connections=20,
                zone=key[1],
                rate=self._rates.get(key[0]),
            )
            place = Destination(name=key[0], hosts=((key[0],),), port=25)
            self._hops[key] = hop(place, policy, sole=not key[1])
        return self._hops[key]


def assert_within(attempts: list[Tried], rate: Rate) -> None:
    """No stretch of time sees more than the rate and one burst."""
    burst = Limit(Scope.LANE, rate).burst
    level, last = float(burst), 0
    for tried in attempts:
        level = min(level + (tried.at - last) * rate.count / rate.per, burst) - len(tried.recipients)
        last = tried.at
        assert level > -1e-6, f"too many by {tried.at} ms"


def delivered(ended: list[Ended]) -> int:
    return sum(each.how == "delivered" for each in ended)


@settings(max_examples=8)
@given(
    lane=st.sampled_from([Rate(count=1, per=SECOND), Rate(count=200, per=HOUR), Rate(count=30, per=MINUTE)]),
    zone=st.sampled_from([Rate(count=2, per=SECOND), Rate(count=300, per=HOUR)]),
    sender=st.sampled_from([Rate(count=100, per=HOUR), Rate(count=5, per=SECOND)]),
    loads=st.lists(
        st.tuples(st.integers(0, 14 * DAY), st.integers(1, 400), st.integers(0, 3)), min_size=1, max_size=8
    ),
)
def test_no_interval_of_weeks_sees_more_than_each_limit_allows(
    lane: Rate, zone: Rate, sender: Rate, loads: list[tuple[int, int, int]]
) -> None:
    world = World(
        bounds(zones={"bulk": zone}, senders={"lists.example": sender}),
        Map(slow_example=lane),
        {"slow.example": Server(), "fast.example": Server()},
    )
    for at, count, kind in loads:
        domain = "slow.example" if kind % 2 else "fast.example"
        source = "news@lists.example" if kind > 1 else "a@here.example"
        world.at(at, partial(world.send, domain, count, source, "bulk"))
    world.run(21 * DAY)
    assert_within([each for each in world.attempts if each.lane == "slow.example via bulk"], lane)
    assert_within([each for each in world.attempts if each.zone == "bulk"], zone)
    assert_within([each for each in world.attempts if each.sender == "news@lists.example"], sender)
    assert world.waiting == 0


@pytest.mark.parametrize(
    "rate", [Rate(count=10, per=SECOND), Rate(count=500, per=HOUR), Rate(count=5, per=HOUR)]
)
def test_a_rate_that_is_asked_for_is_used_to_the_full(rate: Rate) -> None:
    count = 3 * max(rate.count * HOUR // rate.per, 10)
    ideal = count * rate.per // rate.count
    world = World(bounds(), Map(slow_example=rate), {"slow.example": Server()})
    world.send("slow.example", min(count, 5000))
    world.run(4 * ideal)
    assert delivered(world.ended) == min(count, 5000)
    last = world.ended[-1].at
    assert last <= min(count, 5000) * rate.per / rate.count * 1.05 + 30 * SECOND


def test_a_rate_limited_lane_delays_no_other() -> None:
    world = World(
        bounds(queuecache=200),
        Map(slow_example=Rate(count=60, per=HOUR)),
        {"slow.example": Server(), "fast.example": Server()},
    )
    world.send("slow.example", 3000)
    world.at(MINUTE, lambda: world.send("fast.example", 100))
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, world.table.entering.active)
        world.at(world.now + SECOND, look)

    world.at(MINUTE, look)
    world.run(10 * MINUTE)
    fast = [each.at for each in world.ended if each.recipient.domain == "fast.example"]
    assert len(fast) == 100
    assert max(fast) < MINUTE + 5 * SECOND
    assert most <= 100 + 10


def test_a_rate_limited_sender_delays_no_other_in_its_lane() -> None:
    rate = Rate(count=60, per=HOUR)
    world = World(bounds(senders={"lists.example": rate}), Map(), {"d.example": Server()})
    world.send("d.example", 50, sender="news@lists.example")
    world.send("d.example", 50, sender="ann@here.example")
    world.run(30 * SECOND)
    others = [each for each in world.ended if each.recipient.envelope.sender == "ann@here.example"]
    assert len(others) == 50
    assert len(world.ended) - 50 <= 2
    world.run(HOUR)
    assert len(world.ended) == 100


def test_a_large_job_is_cut_to_what_its_rate_allows() -> None:
    world = World(bounds(), Map(d_example=Rate(count=6000, per=HOUR)), {"d.example": Server()})
    world.message("d.example", 60)
    world.run(MINUTE)
    sizes = [len(each.recipients) for each in world.attempts]
    assert sum(sizes) == 60
    assert max(sizes) == 16
    # Not one by one: those who wait outside come back together.
    assert len(sizes) < 30


def test_a_zone_short_of_tokens_sends_in_order_of_arrival() -> None:
    domains = [f"d{number}.example" for number in range(5)]
    world = World(
        bounds(zones={"bulk": Rate(count=4, per=SECOND)}),
        Map(),
        {domain: Server() for domain in domains},
    )
    # Bursts to one destination after the other: by turns of lanes the last would go among the first.
    for domain in domains:
        world.send(domain, 16, zone="bulk")
    world.run(MINUTE)
    spids = [each.recipients[0].spid for each in world.attempts]
    assert len(spids) == 80
    assert spids == sorted(spids)


def test_zones_take_turns_where_connections_are_scarce() -> None:
    domains = [f"d{number}.example" for number in range(10)]
    world = World(bounds(maxconnections=2), Map(), {domain: Server() for domain in domains})
    for domain in domains[:9]:
        world.send(domain, 20, zone="bulk")
    world.send(domains[9], 20, zone="fast")
    world.run(3 * SECOND)
    zones = Counter(each.zone for each in world.attempts[:20])
    assert abs(zones["bulk"] - zones["fast"]) <= 2


def test_untried_recipients_expire_at_their_age() -> None:
    server = Server(dead=lambda now: True)
    world = World(bounds(), Map(), {"dead.example": server})
    world.send("dead.example", 100)
    world.at(2 * DAY, lambda: world.send("dead.example", 100))
    world.run(8 * DAY)
    assert world.waiting == 0
    assert len(world.attempts) < 8 * 24 * 4 + 50
    ages = [each.at + START_MS - each.recipient.envelope.received for each in world.ended]
    assert min(ages) >= SCHEDULE.maxtime
    assert max(ages) <= SCHEDULE.maxtime + SCHEDULE.delays[0] + MINUTE
    assert {each.how for each in world.ended} == {"expired", "judged"}


@settings(max_examples=6)
@given(
    rate=st.sampled_from([None, Rate(count=1, per=HOUR), Rate(count=20, per=HOUR)]),
    service=st.sampled_from([50, 5 * MINUTE]),
    outage=st.tuples(st.integers(0, 6 * DAY), st.integers(0, 6 * DAY)),
    defers=st.booleans(),
    count=st.integers(1, 150),
)
def test_nothing_outlives_its_age_limit_by_more_than_is_stated(
    rate: Rate | None, service: int, outage: tuple[int, int], defers: bool, count: int
) -> None:
    begin, length = outage
    server = Server(
        service_ms=service,
        dead=lambda now: begin <= now < begin + length,
        fail_ms=MINUTE,
        defers=lambda now: defers,
        capacity=2,
    )
    world = World(bounds(queuecache=100), Map(d_example=rate), {"d.example": server})
    world.send("d.example", count)
    world.at(DAY, lambda: world.send("d.example", count))
    world.run(10 * DAY)
    assert world.waiting == 0
    ages = [
        each.at + START_MS - each.recipient.envelope.received
        for each in world.ended
        if each.how != "delivered"
    ]
    # Its attempt may have begun before, and takes as long as it takes.
    slack = HOUR + PATROL_MS + service * 10
    assert max(ages, default=0) <= SCHEDULE.maxtime + grace(SCHEDULE) + slack


def test_rated_mail_has_time_for_an_attempt_after_a_long_stop() -> None:
    world = World(bounds(), Map(d_example=Rate(count=600, per=HOUR)), {"d.example": Server()})
    world.send("d.example", 1000)
    for at in range(len(world._due)):
        due, number, recipient = world._due[at]
        world._due[at] = due, number, recipient_of_age(recipient, 5 * DAY)
    world.run(DAY)
    assert delivered(world.ended) == 1000


def recipient_of_age(recipient: Recipient, age: int) -> Recipient:
    return replace(recipient, envelope=replace(recipient.envelope, received=START_MS - age))


@pytest.mark.parametrize("probe_takes", [20, 10 * SECOND])
def test_after_a_dead_destination_recovers_its_mail_goes_soon(probe_takes: int) -> None:
    server = Server(dead=lambda now: now < HOUR, connect_ms=probe_takes)
    world = World(bounds(), Map(), {"d.example": server})
    world.send("d.example", 400)
    world.run(3 * HOUR)
    answered = min(each.at for each in world.ended)
    parked = [each.at for each in world.ended if not each.recipient.attempts]
    assert len(parked) > 300
    # The first of them within the grace, or as long as the probe took; the window then grows.
    assert min(each for each in parked) - answered <= max(PROBE_GRACE_MS, 5 * probe_takes)
    assert len(world.ended) == 400


def test_few_connections_carry_all_mail_at_the_first_attempt() -> None:
    server = Server(most=3)
    world = World(bounds(), Map(), {"d.example": server})
    world.send("d.example", 2000)
    world.run(5 * MINUTE)
    assert delivered(world.ended) == 2000
    assert {each.recipient.attempts for each in world.ended} == {0}
    assert server.peak == 3
    # Two at the start beyond what it takes; later one a minute, to see whether that has changed.
    assert server.refused <= 2 + 5


@pytest.mark.parametrize("count", [1, 3, 12])
def test_mail_goes_soon_after_a_dead_destination_returns(count: int) -> None:
    back = 6 * HOUR + 7 * MINUTE
    server = Server(dead=lambda now: now < back)
    world = World(bounds(), Map(), {"dead.example": server})
    world.send("dead.example", count)
    world.run(7 * HOUR)
    times = sorted(each.at for each in world.ended)
    assert len(times) == count
    assert times[-1] <= back + SCHEDULE.delays[0] + 10 * SECOND
    assert len(world.attempts) <= 2 * count + 6 * 4 + 8


def test_dead_destinations_without_mail_leave_nothing() -> None:
    names = [f"dead{number}.example" for number in range(300)]
    world = World(bounds(), Map(), {name: Server(dead=lambda now: True) for name in names})
    for name in names:
        world.send(name)
    world.run(2 * DAY)
    assert world.table.passing.suspended == 300
    world.run(SCHEDULE.maxtime + HOUR)
    assert world.waiting == 0
    assert world.table.passing.suspended == 0
    assert list(world.table.lanes()) == []
