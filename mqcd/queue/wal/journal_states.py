"""What may happen to the journal's writing: a table of event and state to the state that follows. Pure.

`Journal` changes its state by `after` alone; what the table does not have raises IllegalTransition and
changes nothing. How often writing has failed, why, and whether the segment is to be sealed are facts beside
it, in any state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from mqcd.core.errors import IllegalTransition


class State(Enum):
    """What the journal does with frames."""

    IDLE = auto()
    """None waits."""
    DUE = auto()
    """A turn is due that writes the waiting frames: the next of the loop, or a later one after a failure."""
    WRITING = auto()
    """A group is with the committer; others wait."""
    BROKEN = auto()
    """None is taken: memory may differ from what is on disk."""
    CLOSED = auto()
    """None is taken: the queue is being closed. The last group may still be with the committer."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each frame."""


class Event(Enum):
    """What changes the state."""

    SCHEDULE = auto()
    TURN = auto()
    """The turn has come."""
    WRITE = auto()
    """A group goes to the committer."""
    DONE = auto()
    """It is durable, or has failed."""
    BREAK = auto()
    STOP = auto()

    __hash__ = object.__hash__


TABLE: Mapping[Event, Mapping[State, State]] = {
    Event.SCHEDULE: {State.IDLE: State.DUE, State.DUE: State.DUE},
    Event.TURN: {State.IDLE: State.IDLE, State.DUE: State.IDLE},
    # A frame may have been added, and its turn be due, while room was made for those before it.
    Event.WRITE: {State.IDLE: State.WRITING, State.DUE: State.WRITING},
    Event.DONE: {State.WRITING: State.IDLE, State.CLOSED: State.CLOSED},
    Event.BREAK: {State.IDLE: State.BROKEN, State.DUE: State.BROKEN, State.CLOSED: State.CLOSED},
    Event.STOP: dict.fromkeys(State, State.CLOSED),
}
ENDED = (State.BROKEN, State.CLOSED)
"""Nothing is taken in one of these."""


def after(state: State, event: Event) -> State:
    """The state that follows. Raises IllegalTransition."""
    following = TABLE[event].get(state)
    if following is None:
        raise IllegalTransition(f"{event.name} of a journal in state {state.name}")
    return following
