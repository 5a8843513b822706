"""The states of a worker."""

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.core.states import following
from mqcd.deliver.connection.states import TABLE, Event, State

LIFE = [
    (Event.BEGIN, State.OPENING),
    (Event.OPENED, State.WORKING),
    (Event.REST, State.RESTING),
    (Event.RESERVE, State.RESERVED),
    (Event.REST, State.RESTING),
    (Event.RESERVE, State.RESERVED),
    (Event.HAND, State.WORKING),
    (Event.RECALL, State.RECALLED),
    (Event.LEAVE, State.LEAVING),
    (Event.LEAVE, State.LEAVING),
]


def test_each_state_has_a_row() -> None:
    assert set(TABLE) == set(State)


def test_a_worker_opens_works_rests_and_leaves() -> None:
    state = State.NEW
    for event, expected in LIFE:
        state = following(TABLE, state, event, "worker")
        assert state is expected


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.NEW, Event.RECALL),
        (State.OPENING, Event.REST),
        (State.WORKING, Event.HAND),
        (State.RESTING, Event.HAND),
        (State.RESTING, Event.RECALL),
        (State.RECALLED, Event.REST),
        *((State.LEAVING, event) for event in Event if event is not Event.LEAVE),
    ],
)
def test_an_illegal_event_raises(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition):
        following(TABLE, state, event, "worker")
