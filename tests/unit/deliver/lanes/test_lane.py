"""The two state tables of a lane."""

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.deliver.lanes.lane import (
    CONDITIONS,
    STANDINGS,
    Condition,
    Event,
    Lane,
    Move,
    Standing,
)
from tests.unit.deliver.lanes.test_scheduling import PLACES, REFUSED, fill, lane_of, table


def test_each_state_has_a_row() -> None:
    assert set(CONDITIONS) == set(Condition)
    assert set(STANDINGS) == set(Standing)


@pytest.mark.parametrize(
    ("condition", "event"),
    [(Condition.PROBING, Event.FORGET), *((Condition.FORGOTTEN, event) for event in Event)],
)
def test_an_illegal_event_raises(condition: Condition, event: Event) -> None:
    lane = Lane(PLACES["a"], condition=condition)
    with pytest.raises(IllegalTransition):
        lane.on(event)
    assert lane.condition is condition


@pytest.mark.parametrize(
    ("standing", "move"),
    [
        (standing, move)
        for standing in Standing
        for move in Move
        if (standing, move)
        not in {
            (Standing.OUT, Move.JOIN),
            (Standing.OUT, Move.HOLD),
            (Standing.IN_LINE, Move.TURN),
            (Standing.HELD, Move.RELEASE),
        }
    ],
)
def test_an_illegal_move_raises(standing: Standing, move: Move) -> None:
    with pytest.raises(IllegalTransition):
        Lane(PLACES["a"], standing=standing).move(move)


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
    assert lane.standing is Standing.IN_LINE
