"""Turns, windows, suspensions: decisions over a lane table, time given as a number."""

from dataclasses import replace

import pytest

from mqcd.config.settings import Rate, TlsPolicy
from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.decisions import BREAKS, STUCK_MS
from mqcd.deliver.lanes.lane import Bounds, Give, Lane, Start
from mqcd.deliver.lanes.outside import FIRST_PROBE_MS, MIN_REST_MS, MOST_GRACE_MS, PROBE_GRACE_MS
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.window import CEILING_MS, PERIOD_MS, START_WINDOW, Feedback, Window
from mqcd.deliver.routing.policy import Hop, Policy, hop
from mqcd.deliver.routing.routing import Destination

MINUTE = 60_000
REFUSED = Reply(code=451, status="4.4.1", text="connection refused")


def table(
    *,
    queuecache: int = 1000,
    maxconnections: int = 100,
    maxrecips: int = 50,
) -> LaneTable:
    return LaneTable(
        Bounds(
            queuecache=queuecache,
            maxconnections=maxconnections,
            maxrecips=maxrecips,
        )
    )


def to(name: str, *, connections: int = 20, first_retry: int = 15 * MINUTE, sole: bool = True) -> Hop:
    schedule = RetrySchedule(delays=(first_retry,), maxtime=first_retry, maxtime_reports=first_retry)
    policy = Policy(schedule=schedule, helo="me.example", tls=TlsPolicy.MAY, connections=connections)
    return hop(Destination(name=name, hosts=((name,),), port=25), policy, sole)


PLACES = {name: to(name) for name in ("a", "b", "c", "dead")}


def fill(
    lanes: LaneTable, name: str, count: int, now: int = 0, first: int = 0, via: Hop | None = None
) -> list[Give]:
    """`count` messages with one recipient each, claimed for destination `name`, or for the hop `via`."""
    given = []
    for number in range(first, first + count):
        recipient = Recipient(
            envelope=Envelope(spid=(number + 1) * 2, sender="", received=0),
            size=1,
            qid=1,
            address=f"to@{name}.example",
        )
        lanes.entering.active += 1
        give = lanes.entering.add(recipient, f"{name}.example", via or PLACES[name], now)
        if give is not None:
            lanes.entering.active -= len(give.recipients)
            given.append(give)
    return given


def get_known(lanes: LaneTable, name: str) -> None:
    """One transaction of a lane goes through."""
    fill(lanes, name, 1, first=900)
    [start] = lanes.dispatch(0)
    lanes.opened(start.lane)
    lanes.went_through(start.lane, 0)
    lanes.closed(start.lane, 0, working=True)
    lanes.entering.active -= 1


def refused(lanes: LaneTable, lane: Lane, now: int) -> None:
    """A connection of the lane is refused."""
    lanes.failed(lane, now, REFUSED)
    lanes.closed(lane, now, working=False)


def with_a_dead_one() -> tuple[LaneTable, Start]:
    """A table whose only lane is suspended since 0, and the attempt that failed."""
    lanes = table()
    fill(lanes, "dead", 1)
    [start] = lanes.dispatch(0)
    refused(lanes, start.lane, 0)
    return lanes, start


def names(started: list[Start]) -> list[str]:
    return [start.lane.name for start in started]


def lane_of(lanes: LaneTable, name: str) -> Lane:
    return next(lane for lane in lanes.lanes() if lane.name == name)


def test_lanes_take_turns() -> None:
    lanes = table()
    fill(lanes, "a", 10, via=to("a", connections=2))
    fill(lanes, "b", 1)
    fill(lanes, "c", 10, via=to("c", connections=2))
    assert names(lanes.dispatch(0)) == ["a", "b", "c", "a", "c"]


def test_a_long_lane_yields_connections_others_wait_for() -> None:
    lanes = table(maxconnections=2)
    fill(lanes, "a", 10)
    [first, second] = lanes.dispatch(0)
    fill(lanes, "b", 1, first=50)
    assert lanes.dispatch(0) == []
    lanes.opened(first.lane)
    lanes.went_through(first.lane, 1)
    assert lanes.next_job(first.lane, 1) is None
    assert not lanes.keep(first.lane)
    lanes.closed(first.lane, 0, working=True)
    assert names(lanes.dispatch(2)) == ["a"]
    lanes.closed(second.lane, 0, working=False)
    assert names(lanes.dispatch(3)) == ["b"]


def test_the_window_grows_on_success_and_halves_on_failure() -> None:
    lanes = table()
    fill(lanes, "a", 500, via=to("a", connections=8))
    started = lanes.dispatch(0)
    assert len(started) == 5
    lane = started[0].lane
    lanes.opened(lane)
    for _ in range(100):
        lanes.went_through(lane, 1)
    assert len(lanes.dispatch(1)) == 3
    assert lane.window.size == 8
    assert lanes.failed(lane, 2, REFUSED) is None
    assert lane.window.size == 4
    assert not lane.suspended


def test_the_window_halves_with_each_connection_that_breaks() -> None:
    lanes = table()
    fill(lanes, "a", 500)
    lane = lanes.dispatch(0)[0].lane
    lane.window = Window(size=12.0)
    assert lanes.broke(lane, 1, REFUSED) is None
    assert lane.window.size == 6.0
    lane.window = Window(size=1.5)
    assert lanes.broke(lane, 1, REFUSED) is None
    assert lane.window.size == 1.0


def test_a_policy_change_splits_a_job() -> None:
    lanes = table()
    envelope = Envelope(spid=3, sender="", received=0)
    before, after = to("a"), to("a", connections=7)
    for qid, way in enumerate((before, before, after), 1):
        recipient = Recipient(envelope=envelope, size=1, qid=qid, address=f"r{qid}@a.example")
        lanes.entering.add(recipient, "a.example", way, 0)
    jobs = [start.job for start in lanes.dispatch(0)]
    assert [(len(job.recipients), job.hop.policy.connections) for job in jobs] == [(2, 20), (1, 7)]


@pytest.mark.parametrize(("most", "jobs"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (0, [5])])
def test_recipients_of_one_message_share_a_job_up_to_maxrecips(most: int, jobs: list[int]) -> None:
    lanes = table(maxrecips=most)
    envelope = Envelope(spid=3, sender="", received=0)
    for qid in range(1, 6):
        recipient = Recipient(envelope=envelope, size=1, qid=qid, address=f"r{qid}@a.example")
        lanes.entering.add(recipient, "a.example", PLACES["a"], 0)
    assert [len(start.job.recipients) for start in lanes.dispatch(0)] == jobs


def test_idle_connections_are_used_before_new_ones() -> None:
    lanes = table()
    fill(lanes, "a", 1)
    [start] = lanes.dispatch(0)
    lanes.opened(start.lane)
    lanes.went_through(start.lane, 0)
    assert lanes.next_job(start.lane, 0) is None
    assert lanes.keep(start.lane)
    fill(lanes, "a", 2, first=10)
    assert [start.reuse for start in lanes.dispatch(1)] == [True, False]


def new(count: int) -> list[Recipient]:
    envelope = Envelope(spid=0x101, sender="", received=0)
    return [
        Recipient(envelope=envelope, size=1, qid=qid, address=f"{qid}@a.example")
        for qid in range(1, count + 1)
    ]


def with_an_idle_one(lanes: LaneTable) -> Lane:
    """A connection to "a" is open and has nothing to do."""
    fill(lanes, "a", 1)
    [start] = lanes.dispatch(0)
    lanes.opened(start.lane)
    lanes.went_through(start.lane, 0)
    lanes.entering.active -= 1
    assert lanes.keep(start.lane)
    return start.lane


def test_new_mail_starts_over_an_idle_connection_only() -> None:
    lanes = table(maxrecips=3)
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is None
    lane = with_an_idle_one(lanes)
    assert lanes.entering.start_new(new(4), PLACES["a"], 0) is None
    start = lanes.entering.start_new(new(3), PLACES["a"], 0)
    assert start is not None
    assert (start.lane, start.reuse, len(start.job.recipients)) == (lane, True, 3)
    assert (lane.idle, lane.connections, lanes.entering.active) == (0, 1, 3)


def test_new_mail_waits_for_each_connection_at_work() -> None:
    lanes = table()
    lane = with_an_idle_one(lanes)
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is not None
    waits = lanes.entering.start_new(new(1), PLACES["a"], 0)
    assert waits is not None
    assert (waits.reuse, lane.coming, lanes.entering.active) == (False, 1, 2)
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is None
    lanes.entering.undo_start(waits)
    assert (lane.coming, lanes.entering.active) == (0, 1)
    waits = lanes.entering.start_new(new(1), PLACES["a"], 0)
    assert waits is not None
    lanes.entering.came(waits)
    assert (lane.coming, lanes.entering.active) == (0, 2)
    lanes.entering.leave(waits.job.recipients)
    fill(lanes, "a", 1)
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is None


def test_new_mail_waits_behind_what_its_lane_holds() -> None:
    lanes = table()
    with_an_idle_one(lanes)
    fill(lanes, "a", 1)
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is None


def test_new_mail_is_not_started_where_the_active_set_is_full() -> None:
    lanes = table(queuecache=10)
    with_an_idle_one(lanes)
    lanes.entering.active = 9
    assert lanes.entering.start_new(new(2), PLACES["a"], 0) is None
    assert lanes.entering.start_new(new(1), PLACES["a"], 0) is not None


def test_a_start_that_is_undone_leaves_the_connection_idle() -> None:
    lanes = table()
    lane = with_an_idle_one(lanes)
    start = lanes.entering.start_new(new(1), PLACES["a"], 0)
    assert start is not None
    lanes.entering.undo_start(start)
    assert lanes.keep(lane)
    assert (lane.idle, lane.connections, lanes.entering.active) == (1, 1, 0)


def test_a_dead_destination_keeps_one_probe_only() -> None:
    lanes = table()
    fill(lanes, "dead", 20)
    started = lanes.dispatch(0)
    lane = started[0].lane
    give = lanes.failed(lane, 1000, REFUSED)
    assert give is not None
    assert len(give.recipients) == 20 - 5 - 1
    assert give.after == FIRST_PROBE_MS + PROBE_GRACE_MS
    assert lanes.passing.skip(1000) == {"dead.example": FIRST_PROBE_MS + PROBE_GRACE_MS}
    for _ in started:
        lanes.closed(lane, 0, working=False)
    assert lanes.dispatch(1000 + FIRST_PROBE_MS - 1) == []
    assert lanes.next_wake(1000) == FIRST_PROBE_MS
    [probe] = lanes.dispatch(1000 + FIRST_PROBE_MS)
    assert len(probe.job.recipients) == 1
    assert fill(lanes, "dead", 3, now=1000 + FIRST_PROBE_MS, first=90)[0].after == PROBE_GRACE_MS


def test_probe_intervals_grow_up_to_the_first_retry_delay() -> None:
    lanes = table()
    now, waits = 0, []
    for attempt in range(5):
        fill(lanes, "dead", 1, now=now, first=attempt, via=to("dead", first_retry=3 * MINUTE))
        [start] = lanes.dispatch(now)
        lanes.failed(start.lane, now, REFUSED)
        lanes.closed(start.lane, 0, working=False)
        waits.append(start.lane.suspension.until - now)
        now = start.lane.suspension.until
    assert waits == [MINUTE, 2 * MINUTE, 3 * MINUTE, 3 * MINUTE, 3 * MINUTE]


def test_a_suspended_lane_that_nobody_waits_for_is_forgotten() -> None:
    lanes = table()
    for number in range(2000):
        fill(lanes, "dead", 1, first=number, via=to(f"dead{number}"))
    for start in lanes.dispatch(0):
        refused(lanes, start.lane, 0)
    while started := lanes.dispatch(0):
        for start in started:
            refused(lanes, start.lane, 0)
    assert lanes.passing.suspended == 2000
    fill(lanes, "dead", 1, now=MINUTE, first=5000, via=to("dead7"))
    lanes.forget(FIRST_PROBE_MS + MOST_GRACE_MS)
    assert lanes.passing.suspended == 2000, "mail may still come"
    lanes.forget(FIRST_PROBE_MS + MOST_GRACE_MS + 1)
    assert [lane.name for lane in lanes.lanes()] == ["dead7"]
    assert lanes.passing.suspended == 1


def test_what_claims_pass_over_is_looked_up_not_listed() -> None:
    lanes = table()
    fill(lanes, "dead", 1)
    [start] = lanes.dispatch(0)
    assert not lanes.passing.skip(0)
    refused(lanes, start.lane, 0)
    skip = lanes.passing.skip(1000, 500_000)
    assert skip
    assert (skip.get("dead.example", 0), skip.get("a.example", 0)) == (500_000 + FIRST_PROBE_MS - 1000, 0)
    lanes.went_through(start.lane, 2000)
    assert (skip.get("dead.example", 0), bool(lanes.passing.skip(2000))) == (0, False)


def test_mail_for_a_dead_destination_returns_for_its_probe() -> None:
    lanes = table()
    fill(lanes, "dead", 1)
    [start] = lanes.dispatch(0)
    assert start.lane.comes_back(0) is None
    lanes.failed(start.lane, 100, REFUSED)
    [other] = fill(lanes, "dead", 1, now=100, first=1)
    assert other.after < (start.lane.comes_back(100) or 0) <= FIRST_PROBE_MS + 2 * PROBE_GRACE_MS


def suspend(lanes: LaneTable, name: str) -> Lane:
    """Two recipients come for a destination that takes no connection: one is left, as its probe."""
    fill(lanes, name, 2, first=10 * len(name))
    for start in lanes.dispatch(0):
        lanes.failed(start.lane, 0, REFUSED)
        lanes.put_back(start.lane, start.job)
        lanes.closed(start.lane, 0, working=False)
    return lane_of(lanes, name)


def test_a_probe_that_is_asked_for_begins_at_once() -> None:
    lanes = table()
    dead = suspend(lanes, "dead")
    assert lanes.dispatch(1) == []
    lanes.probe({"a.example"}, 2)
    lanes.probe({"dead.example"}, 2)
    [start] = lanes.dispatch(2)
    assert start.lane is dead
    refused(lanes, dead, 3)
    assert dead.suspension.until == 3 + FIRST_PROBE_MS
    assert lanes.dispatch(4) == []


def test_probes_go_to_the_destinations_of_the_domains() -> None:
    lanes = table()
    dead, other = suspend(lanes, "dead"), suspend(lanes, "b")
    lanes.probe({"b.example"}, 1)
    assert (dead.suspension.until > 1, other.suspension.until) == (True, 1)
    lanes.probe({"unheard.example"}, 2)
    assert dead.suspension.until > 2


def test_a_shared_destination_is_probed_for_any_domain() -> None:
    lanes = table()
    fill(lanes, "dead", 1, via=to("shared", sole=False))
    [start] = lanes.dispatch(0)
    refused(lanes, start.lane, 0)
    lanes.probe({"unheard.example"}, 2)
    assert start.lane.suspension.until == 2


def test_all_probes_can_be_asked_for() -> None:
    lanes = table()
    suspend(lanes, "dead"), suspend(lanes, "b")
    lanes.probe(None, 1)
    assert sorted(names(lanes.dispatch(1))) == ["b", "dead"]


def test_a_probe_that_gets_through_revives_the_lane() -> None:
    lanes, _ = with_a_dead_one()
    assert lanes.passing.suspended == 1
    fill(lanes, "dead", 1, now=MINUTE, first=5)
    [probe] = lanes.dispatch(MINUTE)
    lanes.opened(probe.lane)
    assert lanes.passing.suspended == 1, "that a server answers does not mean that it takes mail"
    assert len(fill(lanes, "dead", 3, now=MINUTE, first=10)) == 3
    lanes.went_through(probe.lane, MINUTE)
    assert lanes.passing.suspended == 0
    assert fill(lanes, "dead", 3, now=MINUTE, first=20) == []
    assert probe.lane.window.size == 2, "one, and what a success adds"


def test_broken_connections_lead_to_probes_like_refused_ones() -> None:
    lanes = table()
    fill(lanes, "dead", 20)
    lane = lanes.dispatch(0)[0].lane
    for _ in range(5):
        lanes.opened(lane)
        lanes.broke(lane, 0, REFUSED)
        lanes.closed(lane, 0, working=True)
    now, waits = 0, []
    for attempt in range(4):
        waits.append(lane.suspension.until - now)
        now = lane.suspension.until
        fill(lanes, "dead", 1, now=now, first=100 + attempt)
        [probe] = lanes.dispatch(now)
        assert len(probe.job.recipients) == 1
        lanes.opened(lane)
        assert lanes.dispatch(now) == []
        lanes.broke(lane, now, REFUSED)
        lanes.closed(lane, now, working=True)
    assert waits == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE]


def test_connections_that_only_break_suspend_too() -> None:
    lanes = table()
    fill(lanes, "dead", 20)
    lane = lanes.dispatch(0)[0].lane
    lanes.opened(lane)
    gives = [lanes.broke(lane, 0, REFUSED) for _ in range(BREAKS)]
    assert gives[:-1] == [None] * (BREAKS - 1)
    assert gives[-1] is not None
    assert lane.suspended
    lanes.opened(lane)
    lanes.went_through(lane, 1)
    assert lanes.broke(lane, 2, REFUSED) is None


def test_claims_wait_until_a_tenth_of_the_active_set_is_free() -> None:
    lanes = table(queuecache=100)
    lanes.entering.active = 91
    assert lanes.entering.room() == 0
    lanes.entering.active = 90
    assert lanes.entering.room() == 10


def test_a_slow_lane_cannot_fill_the_active_set() -> None:
    lanes = table(queuecache=100)
    get_known(lanes, "dead")
    fill(lanes, "dead", 95)
    lanes.dispatch(0)
    assert lanes.relieve(STUCK_MS - 1) == []
    [give] = lanes.relieve(STUCK_MS)
    assert len(give.recipients) == 95 - 5 - 50
    assert give.after >= STUCK_MS
    assert "dead.example" in lanes.passing.skip(STUCK_MS)
    assert lanes.passing.skip(STUCK_MS + give.after) == {}
    lanes.renew_rests(STUCK_MS + give.after)
    assert lanes.passing.skip(STUCK_MS + give.after) == {"dead.example": 2 * give.after}
    assert lanes.passing.skip(STUCK_MS + 3 * give.after - 1) == {"dead.example": 1}


def test_a_rest_ends_when_half_of_the_share_is_used_up() -> None:
    lanes = table(queuecache=100)
    get_known(lanes, "a")
    fill(lanes, "a", 95)
    lane = lanes.dispatch(0)[0].lane
    [give] = lanes.relieve(STUCK_MS)
    lanes.opened(lane)
    for _ in range(26):
        assert lanes.next_job(lane, STUCK_MS) is not None
    lanes.renew_rests(STUCK_MS + give.after)
    assert lanes.passing.skip(STUCK_MS + give.after) == {}


def test_a_slow_lane_keeps_its_share_until_it_delivers() -> None:
    lanes = table(queuecache=100)
    get_known(lanes, "a")
    fill(lanes, "a", 95)
    started = lanes.dispatch(0)
    lane = started[0].lane
    [give] = lanes.relieve(STUCK_MS)
    lanes.entering.active -= len(give.recipients)
    now, waits = STUCK_MS, []
    for number in range(8):
        now += lane.share.rest
        [outside] = fill(lanes, "a", 1, now=now, first=200 + number)
        waits.append(outside.after)
    assert waits == [1000 * 2**number for number in range(8)]
    lanes.opened(lane)
    for _ in range(26):
        assert lanes.next_job(lane, now) is not None
    assert fill(lanes, "a", 40, now=now, first=300) == []


def test_a_new_lane_holds_a_quarter_of_the_active_set() -> None:
    lanes = table(queuecache=100)
    given = fill(lanes, "a", 95)
    assert len(given) == 70
    assert {give.after for give in given} == {MIN_REST_MS}
    assert lanes.passing.skip(0) == {"a.example": MIN_REST_MS}
    lane = lane_of(lanes, "a")
    lanes.dispatch(0)
    lanes.opened(lane)
    lanes.went_through(lane, 50)
    assert fill(lanes, "a", 70, now=100, first=200) == []


def test_a_lane_that_gets_on_keeps_what_it_has() -> None:
    lanes = table(queuecache=100)
    get_known(lanes, "a")
    fill(lanes, "a", 95)
    [start, *_] = lanes.dispatch(0)
    lanes.went_through(start.lane, 1500)
    assert lanes.relieve(1500 + STUCK_MS - 1) == []


def test_weeks_of_a_dead_destination_cost_few_attempts() -> None:
    lanes = table()
    now = attempts = 0
    while now < 14 * 24 * 60 * MINUTE:
        fill(lanes, "dead", 5, now=now, first=now)
        for start in lanes.dispatch(now):
            attempts += 1
            give = lanes.failed(start.lane, now, REFUSED)
            lanes.closed(start.lane, 0, working=False)
            lanes.entering.active = 0 if give is None else lanes.entering.active - len(give.recipients)
        now += MINUTE
    assert attempts < 5 + 14 * 24 * 4 + 10


def test_a_slowing_server_gets_no_more_connections() -> None:
    lanes = table()
    fill(lanes, "a", 900)
    started = lanes.dispatch(0)
    lane = started[0].lane
    took = 100.0
    for now in range(0, 60_000, 100):
        took *= 1.01
        lanes.went_through(lane, now, int(took))
        started += lanes.dispatch(now)
    # Quick for some seventy transactions, until it takes twice as long.
    assert 5 < lane.window.size < 16
    before = lane.window.size
    for now in range(60_000, 120_000, 100):
        took *= 1.01
        lanes.went_through(lane, now, int(took))
    assert lane.window.size == before


def test_a_steadily_slow_server_may_still_grow() -> None:
    lanes = table()
    fill(lanes, "a", 900)
    lane = lanes.dispatch(0)[0].lane
    for now in range(100):
        lanes.went_through(lane, now, 5000)
        lanes.dispatch(now)
    grown = lane.window.size
    assert grown > 10
    for now in range(100, 200):
        lanes.went_through(lane, now, 20_000)
    assert lane.window.size < grown + 2
    later = 2 * PERIOD_MS + 1000
    for now in range(PERIOD_MS, later, 1000):
        lanes.went_through(lane, now, 20_000)
        lanes.dispatch(now)
    for now in range(later, later + 400_000, 1000):
        lanes.went_through(lane, now, 20_000)
        lanes.dispatch(now)
    assert lane.window.size == 20


def test_a_window_does_not_grow_far_beyond_what_is_in_use() -> None:
    lanes = table()
    fill(lanes, "a", 1)
    lane = lanes.dispatch(0)[0].lane
    for now in range(1000):
        lanes.went_through(lane, now, 10)
    assert lane.window.size < 1 + START_WINDOW + 1


def test_deferred_transactions_reduce_connections_one_by_one() -> None:
    lanes = table()
    fill(lanes, "a", 50)
    lane = lanes.dispatch(0)[0].lane
    lanes.went_through(lane, 1, 10, Feedback.PUSHED_BACK)
    assert lane.window.size == START_WINDOW - 1
    lanes.went_through(lane, 1, 10, Feedback.NEUTRAL)
    assert lane.window.size == START_WINDOW - 1
    for _ in range(9):
        lanes.went_through(lane, 1, 10, Feedback.PUSHED_BACK)
    assert lane.window.size == 1


def test_a_domain_that_other_lanes_serve_too_is_not_passed_over() -> None:
    lanes = table()
    shared, own = to("shared", sole=False), to("own")
    fill(lanes, "shared", 10, via=shared)
    fill(lanes, "own", 10, via=own)
    for start in lanes.dispatch(0):
        lanes.failed(start.lane, 0, REFUSED)
    assert lanes.passing.suspended == 2
    assert set(lanes.passing.skip(1)) == {"own.example"}
    assert lanes.passing.is_dead("own.example")
    assert not lanes.passing.is_dead("shared.example")


def test_a_rerouted_domain_is_not_held_by_its_old_lane() -> None:
    lanes = table()
    fill(lanes, "dead", 10)
    for start in lanes.dispatch(0):
        lanes.failed(start.lane, 0, REFUSED)
    assert set(lanes.passing.skip(1)) == {"dead.example"}
    fill(lanes, "dead", 1, now=1, first=20, via=to("b"))
    assert lanes.passing.skip(1) == {}


def test_a_reload_forgets_what_was_passed_over() -> None:
    lanes = table()
    fill(lanes, "dead", 10)
    for start in lanes.dispatch(0):
        lanes.failed(start.lane, 0, REFUSED)
    lanes.rebind(Bounds(queuecache=1000, maxconnections=100, maxrecips=50), 1)
    assert lanes.passing.skip(1) == {}
    assert lanes.passing.suspended == 1
    assert lanes.next_wake(1) == FIRST_PROBE_MS - 1


def test_a_single_lane_at_maxconnections_keeps_its_connections() -> None:
    lanes = table(maxconnections=2)
    fill(lanes, "a", 10)
    [start, _] = lanes.dispatch(0)
    lanes.opened(start.lane)
    lanes.went_through(start.lane, 1)
    assert lanes.next_job(start.lane, 1) is not None


def test_recipients_of_one_site_share_a_job() -> None:
    lanes = table()
    one, two = PLACES["a"], replace(PLACES["a"])
    envelope = Envelope(spid=3, sender="", received=0)
    for qid, place in enumerate((one, two, one), 1):
        recipient = Recipient(envelope=envelope, size=1, qid=qid, address=f"r@d{qid}.example")
        lanes.entering.add(recipient, f"d{qid}.example", place, 0)
    [start] = lanes.dispatch(0)
    assert len(start.job.recipients) == 3


def test_a_long_probe_makes_the_others_rarer() -> None:
    lanes, _ = with_a_dead_one()
    fill(lanes, "dead", 1, now=MINUTE, first=5)
    lanes.dispatch(MINUTE)
    at, waits = MINUTE, []
    for number in range(5):
        [give] = fill(lanes, "dead", 1, now=at, first=10 + number)
        waits.append(give.after)
        at += give.after
    assert waits == [1000, 4000, 20_000, 60_000, 60_000]


def test_observed_connections_limit_later_ones() -> None:
    lanes = table()
    fill(lanes, "a", 500)
    lane = lanes.dispatch(0)[0].lane
    for _ in range(4):
        lanes.opened(lane)
    assert lanes.failed(lane, 0, REFUSED) is None
    assert lane.window.size == 4
    for now in range(0, CEILING_MS, 100):
        lanes.went_through(lane, now, 10)
    assert lane.window.size == 4
    lanes.went_through(lane, CEILING_MS, 10)
    assert lane.window.size > 4


def test_a_silent_server_delays_longer_than_a_refusing_one() -> None:
    lanes, _ = with_a_dead_one()
    fill(lanes, "dead", 1, now=MINUTE, first=5)
    [probe] = lanes.dispatch(MINUTE)
    refused(lanes, probe.lane, 2 * MINUTE)
    again = probe.lane.suspension.until
    fill(lanes, "dead", 1, now=again, first=6)
    lanes.dispatch(again)
    [give] = fill(lanes, "dead", 1, now=again, first=7)
    assert give.after == 10 * PROBE_GRACE_MS


def test_a_lane_that_is_emptied_in_its_sleep_wakes_for_later_mail() -> None:
    lanes = table()
    slow = to("a")
    slow = replace(slow, policy=replace(slow.policy, rate=Rate(count=1, per=MINUTE)))
    fill(lanes, "a", 1, via=slow)
    assert names(lanes.dispatch(0)) == ["a"]
    now = MINUTE - 8000
    assert fill(lanes, "a", 1, now, first=1, via=slow) == []
    assert lanes.dispatch(now) == []
    assert len(lanes.withdraw(lambda _hop, _recipient: True)) == 1
    assert lanes.next_wake(now) == 8000
    assert fill(lanes, "a", 1, now + 1, first=2, via=slow) == []
    assert lanes.dispatch(now + 1) == []
    assert lanes.next_wake(now + 1) == 7999
    assert names(lanes.dispatch(MINUTE)) == ["a"]


def test_jobs_without_tokens_go_in_their_time() -> None:
    """The example of `throttling`."""
    lanes = LaneTable(
        Bounds(
            queuecache=100,
            maxconnections=100,
            maxrecips=50,
            sender_rates={"s@example.org": Rate(count=6, per=MINUTE)},
        )
    )
    place = PLACES["a"]
    via = hop(place.destination, replace(place.policy, rate=Rate(count=1, per=1000)), place.sole)
    for number, sender in enumerate(("s@example.org", "s@example.org", "t@example.org"), 1):
        envelope = Envelope(spid=2 * number, sender=sender, received=0)
        recipient = Recipient(envelope=envelope, size=1, qid=1, address="to@a.example")
        assert lanes.entering.add(recipient, "a.example", via, 0) is None
    times = (0, 999, 1000, 9999, 10_000)
    started = {now: [start.job.envelope.spid // 2 for start in lanes.dispatch(now)] for now in times}
    assert started == {0: [1], 999: [], 1000: [3], 9999: [], 10_000: [2]}
