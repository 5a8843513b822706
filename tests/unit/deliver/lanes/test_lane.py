"""The state table of a lane's destination."""

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.deliver.lanes.lane import (
    CONDITIONS,
    Condition,
    Event,
    Lane,
    Position,
)
from tests.unit.deliver.lanes.test_scheduling import PLACES, REFUSED, fill, lane_of, table


def test_each_state_has_a_row() -> None:
    assert set(CONDITIONS) == set(Condition)


@pytest.mark.parametrize(
    ("condition", "event"),
    [(Condition.PROBING, Event.FORGET), *((Condition.FORGOTTEN, event) for event in Event)],
)
def test_an_illegal_event_raises(condition: Condition, event: Event) -> None:
    lane = Lane(PLACES["a"], condition=condition)
    with pytest.raises(IllegalTransition):
        lane.on(event)
    assert lane.condition is condition


def test_a_destination_fails_is_probed_and_opens() -> None:
    lanes = table()
    fill(lanes, "a", 2)
    lane = lane_of(lanes, "a")
    seen = [lane.condition]
    first, second = lanes.dispatch(0)
    seen.append(lane.condition)
    for _ in (first, second):
        lanes.failed(lane, 0, REFUSED)
        lanes.closed(lane, 0, working=False)
    lanes.put_back(lane, first.job)
    seen.append(lane.condition)
    lanes.probe(None, 1)
    lanes.dispatch(1)
    seen.append(lane.condition)
    lanes.went_through(lane, 2)
    seen.append(lane.condition)
    new, suspended, probing, opened = Condition.NEW, Condition.SUSPENDED, Condition.PROBING, Condition.OPEN
    assert seen == [new, new, suspended, probing, opened]


def test_mail_that_comes_back_to_a_suspended_lane_is_its_probe() -> None:
    lanes = table()
    fill(lanes, "a", 1)
    lane = lane_of(lanes, "a")
    (start,) = lanes.dispatch(0)
    lanes.failed(lane, 0, REFUSED)
    lanes.closed(lane, 0, working=False)
    # Another worker has the mail still: nothing waits, and the server looks when it is to wake next.
    lanes.next_wake(0)
    lanes.took_back(lane, start.job)
    assert lanes.dispatch(0) == []
    until = lane.suspension.until
    assert lanes.next_wake(0) == until
    assert [each.job for each in lanes.dispatch(until)] == [start.job]


def test_a_probe_without_a_result_leaves_it_suspended() -> None:
    lanes = table()
    fill(lanes, "a", 2)
    lane = lane_of(lanes, "a")
    started = lanes.dispatch(0)
    lanes.failed(lane, 0, REFUSED)
    for _ in started:
        lanes.closed(lane, 0, working=False)
    lanes.put_back(lane, started[0].job)
    lanes.probe(None, 1)
    [probe] = lanes.dispatch(1)
    lanes.took_back(lane, probe.job)
    lanes.closed(lane, 2, working=False)
    assert lane.condition is Condition.SUSPENDED
    assert lane.position is Position.IN_LINE
