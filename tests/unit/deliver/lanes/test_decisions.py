"""Decisions on a lane's record: what they say, and that they change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from mqcd.config.settings import Rate
from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.decisions import (
    BREAKS,
    After,
    Short,
    Turn,
    allowed,
    at_turn,
    broke,
    failed,
    holds_back,
    is_free,
    must_close,
    next_rest,
    passed,
    reliefs,
)
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Event, Lane, Why
from mqcd.deliver.lanes.outside import MAX_REST_MS, Share
from mqcd.deliver.lanes.rates import Limit, Scope
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.throttling import Alarms, Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.lanes.window import START_WINDOW, Feedback
from tests.unit.deliver.lanes.test_scheduling import PLACES, REFUSED

ACTIVE_SET = 100


def recipient(number: int = 1) -> Recipient:
    envelope = Envelope(spid=2 * number, sender="a@example.org", received=0)
    return Recipient(envelope=envelope, size=1, qid=1, address="to@a.example")


def lane_with(jobs: int, since: int = 0) -> Lane:
    made = Lane(PLACES["a"])
    for number in range(jobs):
        job = Job(PLACES["a"], recipient().envelope, [recipient(number)], since, order=(number, number))
        made.queue.append(job, joinable=False)
    return made


def of(lane: Lane) -> dict[str, object]:
    """What its record says."""
    return {each.name: getattr(lane, each.name) for each in fields(lane) if each.name not in ("hop", "queue")}


def suspend(lane: Lane) -> None:
    lane.on(Event.FAIL)


def has_idle(lane: Lane) -> None:
    lane.connections = lane.idle = 1


def is_at_its_window(lane: Lane) -> None:
    lane.connections = int(lane.window.size)


def nothing(lane: Lane) -> None:
    pass


@pytest.mark.parametrize(
    ("jobs", "prepare", "taken", "single", "turn"),
    [
        (0, has_idle, 0, False, Turn.LEAVE),
        (1, nothing, 0, False, Turn.OPEN),
        (1, has_idle, 8, False, Turn.REUSE),
        (1, is_at_its_window, 0, False, Turn.LEAVE),
        (1, nothing, 8, False, Turn.STAY),
        (1, nothing, 6, False, Turn.HOLD),
        (1, nothing, 6, True, Turn.OPEN),
        (1, suspend, 0, False, Turn.OPEN),
    ],
)
def test_a_lane_at_its_turn(
    jobs: int, prepare: Callable[[Lane], None], taken: int, single: bool, turn: Turn
) -> None:
    slots, lane = Slots(Turns(), 8), lane_with(jobs)
    others = Lane(PLACES["b"])
    for _ in range(taken):
        slots.opened(others)
    prepare(lane)
    before = of(lane)
    assert at_turn(lane, slots, 0, ACTIVE_SET, single) is turn
    assert of(lane) == before
    assert (slots.taken, slots.doubted) == (taken, taken)


def holds_share(lane: Lane) -> None:
    lane.share = Share(2)


def has_a_rate(lane: Lane) -> None:
    limit = Limit(Scope.LANE, Rate(count=1, per=3_600_000))
    lane.queue.bind((limit,))
    limit.take(1, 0)


HOLDING = {None: nothing, Why.DEAD: suspend, Why.SHARE: holds_share, Why.RATE: has_a_rate}


def test_all_that_holds_back_is_tried_below() -> None:
    assert HOLDING.keys() - {None} == set(Why)


@pytest.mark.parametrize(("why", "prepare"), HOLDING.items())
def test_what_holds_back_also_makes_a_lane_not_free(prepare: Callable[[Lane], None], why: Why | None) -> None:
    lane = lane_with(2)
    prepare(lane)
    before = of(lane)
    assert holds_back(lane, Job(PLACES["a"], recipient(9).envelope, [recipient(9)], 0), 0, ACTIVE_SET) is why
    assert is_free(lane, senders=False) is (why is None)
    assert not is_free(lane, senders=True)
    assert of(lane) == before


def test_a_suspended_lane_takes_one_as_its_probe() -> None:
    lane = lane_with(0)
    suspend(lane)
    assert holds_back(lane, Job(PLACES["a"], recipient().envelope, [recipient()], 0), 0, ACTIVE_SET) is None


def test_the_senders_rate_is_asked_before_the_lanes() -> None:
    lane, sender = lane_with(1), Limit(Scope.SENDER, Rate(count=1, per=1000))
    has_a_rate(lane)
    job = lane.queue.jobs.row[0]
    job.limit = sender
    sender.take(sender.burst, 0)
    assert allowed(job, lane.queue.limits_of(job), 0) == Short(sender, 1000)
    assert isinstance(allowed(job, lane.queue.limits_of(job), 1000), Short)
    assert allowed(job, (sender,), 1000) == 1


def test_a_connection_closes_when_its_lane_is_suspended() -> None:
    lane, slots = lane_with(1), Slots(Turns(), 8)
    assert not must_close(lane, slots)
    suspend(lane)
    assert must_close(lane, slots)


def pass_one(lane: Lane) -> After | None:
    return passed(lane, Feedback.NEUTRAL, True, ACTIVE_SET, 0)


def works(lane: Lane) -> None:
    lane.connections = lane.working = 3


def breaks_often(lane: Lane) -> None:
    lane.breaks = BREAKS - 1


@pytest.mark.parametrize(
    ("decide", "prepare", "event", "window", "breaks"),
    [
        (pass_one, nothing, Event.PASS, START_WINDOW, 0),
        (pass_one, breaks_often, Event.PASS, START_WINDOW, 0),
        (pass_one, suspend, Event.PASS, START_WINDOW, 0),
        (lambda lane: failed(lane, REFUSED, 0), nothing, Event.FAIL, 1, 0),
        (lambda lane: failed(lane, REFUSED, 0), works, None, 3, 0),
        (lambda lane: broke(lane, REFUSED, 0), nothing, None, START_WINDOW / 2, 1),
        (lambda lane: broke(lane, REFUSED, 0), breaks_often, Event.FAIL, 1, 0),
        (lambda lane: broke(lane, REFUSED, 0), suspend, Event.FAIL, 1, 0),
    ],
)
def test_what_follows_from_an_outcome(
    decide: Callable[[Lane], After | None],
    prepare: Callable[[Lane], None],
    event: Event | None,
    window: float,
    breaks: int,
) -> None:
    lane = lane_with(1)
    lane.share = Share(7, 8, 9)
    prepare(lane)
    before = of(lane)
    after = decide(lane)
    assert after is not None
    assert (after.event, after.window.size, after.breaks) == (event, window, breaks)
    assert (after.suspension.reply is REFUSED) is (event is Event.FAIL)
    assert after.share == Share(0 if event is Event.PASS else 7, 8, 9)
    assert of(lane) == before


def test_nothing_follows_where_a_server_goes_on_as_before() -> None:
    lane = lane_with(1)
    lane.on(Event.PASS)
    assert pass_one(lane) is None


def test_a_lane_with_progress_keeps_what_it_holds() -> None:
    stuck, moving = lane_with(60), lane_with(60)
    moving.moved = 4000
    [(lane, share)] = reliefs([stuck, moving], ACTIVE_SET, 4000)
    assert lane is stuck
    assert share.most == ACTIVE_SET // 4
    assert stuck.share == Share()


def test_a_rest_may_be_long_where_nothing_moved_since_the_last_began() -> None:
    now, began = 100_000, 74_400

    def rests(moved: int) -> tuple[int, int]:
        lane = lane_with(ACTIVE_SET, since=20_000)
        lane.share, lane.moved = Share(50, now - began, now), moved
        following, [(_, relieved)] = next_rest(lane, now), reliefs([lane], ACTIVE_SET, now)
        assert following is not None
        return following.rest, relieved.rest

    assert rests(began + 1) == (MAX_REST_MS, MAX_REST_MS)
    assert rests(began) == (2 * (now - began), 40_000)


def test_a_second_limit_of_a_lane_holds_back_that_lane_alone() -> None:
    """As its first does: other lanes of the zone go on, and the lane is not forgotten before it is full."""
    turns, lane = Turns(), lane_with(1)
    hour = Limit(Scope.LANE, Rate(count=1, per=3_600_000))
    lane.queue.bind((Limit(Scope.LANE, Rate(count=9, per=1000)), hour))
    hour.take(1, 0)
    assert Throttle(turns, Alarms()).take(lane, 0) is None
    assert (lane.asleep, turns.zone(lane.hop.policy.zone).asleep) == (3_600_000, 0)
    lane.queue.cut(0)
    assert [lane.owes_nothing(now) for now in (3_599_999, 3_600_000)] == [False, True]
