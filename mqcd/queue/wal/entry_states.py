"""What may happen to a journal entry: a table of event and state to the state that follows. Pure.

`JournalEntry.on` alone changes an entry's state; what the table does not have raises IllegalTransition and
changes nothing. That an attempt has begun is not a state but a fact of the record, which a carry takes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    """What is being done with an entry."""

    WAITING = auto()
    """May be claimed when due."""
    PASSED_OVER = auto()
    """Waits until the time of its domain, whose destination takes no mail now."""
    CLAIMED = auto()
    """In flight."""
    CARRYING = auto()
    """In flight, and a frame that places its record in a newer segment is being written."""
    GIVEN_UP = auto()
    """Given up while that frame is being written: it waits once the frame is durable, or has failed."""
    SETTLING = auto()
    """A frame that ends it or records its verdict is being written."""
    FROZEN = auto()
    """Being evacuated to a cluster: not to be claimed."""
    EVACUATED = auto()
    """Its record is in a cluster."""
    ENDED = auto()
    """The recipient has left the queue."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each frame."""


class Event(Enum):
    """What changes the state of an entry."""

    CLAIM = auto()
    RELEASE = auto()
    """A claim is given up unrecorded, or the record cannot be read now."""
    PASS_OVER = auto()
    RETURN = auto()
    """The time of its domain has come."""
    SETTLE = auto()
    """A frame that settles or parks it goes to the journal."""
    REST = auto()
    """A frame is durable after which it waits again; at a start, that its outcome is unknown."""
    END = auto()
    """A frame is durable that ends it."""
    CARRY = auto()
    """A CARRY frame goes to the journal."""
    CARRIED = auto()
    """That frame is durable, or has failed."""
    FREEZE = auto()
    THAW = auto()
    """The evacuation has failed."""
    EVACUATE = auto()
    """The evacuation is committed."""

    __hash__ = object.__hash__


TABLE: Mapping[Event, Mapping[State, State]] = {
    Event.CLAIM: {State.WAITING: State.CLAIMED, State.PASSED_OVER: State.CLAIMED},
    Event.RELEASE: {State.CLAIMED: State.WAITING, State.CARRYING: State.GIVEN_UP},
    Event.PASS_OVER: {State.WAITING: State.PASSED_OVER},
    Event.RETURN: {State.PASSED_OVER: State.WAITING},
    Event.SETTLE: {State.CLAIMED: State.SETTLING},
    Event.REST: {State.SETTLING: State.WAITING, State.WAITING: State.WAITING},
    Event.END: {State.SETTLING: State.ENDED},
    Event.CARRY: {State.CLAIMED: State.CARRYING},
    Event.CARRIED: {State.CARRYING: State.CLAIMED, State.GIVEN_UP: State.WAITING},
    Event.FREEZE: {State.WAITING: State.FROZEN, State.PASSED_OVER: State.FROZEN},
    Event.THAW: {State.FROZEN: State.WAITING},
    Event.EVACUATE: {State.FROZEN: State.EVACUATED},
}
UNDER_CARRY = frozenset((State.CARRYING, State.GIVEN_UP))
"""A CARRY frame is about to change the record location of an entry in one of these."""
IN_FLIGHT = frozenset((State.CLAIMED, State.SETTLING, *UNDER_CARRY))
"""Something is being done with an entry in one of these, and it will rest or end."""
RESTING = frozenset((State.WAITING, State.PASSED_OVER))
"""Nothing is being done with an entry in one of these."""
