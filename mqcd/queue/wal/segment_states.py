"""What may happen to a journal segment: a table of event and state to the state that follows. Pure.

`Segment.on` alone changes a segment's state; what the table does not have raises IllegalTransition and
changes nothing. How many readers pin it and whether its file has failed are facts of the file, in any state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    """How far a segment has come."""

    OPEN = auto()
    """Frames are appended to it, or it is left and may still lose the group that failed."""
    SEALED = auto()
    """It takes no more frames, and where it ends is certain."""
    EXPORTED = auto()
    """Its events are in an event file."""
    RETIRED = auto()
    """Its records and contents are in clusters and spool, or the queue is closed: the last pin frees it."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each frame."""


class Event(Enum):
    """What changes the state of a segment."""

    SEAL = auto()
    EXPORT = auto()
    EVACUATE = auto()
    """The evacuation is committed."""
    CLOSE = auto()
    """The queue is closed."""

    __hash__ = object.__hash__


TABLE: Mapping[Event, Mapping[State, State]] = {
    Event.SEAL: {State.OPEN: State.SEALED},
    Event.EXPORT: {State.SEALED: State.EXPORTED},
    Event.EVACUATE: {State.EXPORTED: State.RETIRED},
    Event.CLOSE: dict.fromkeys(State, State.RETIRED),
}
TO_EVACUATE = frozenset((State.SEALED, State.EXPORTED))
"""A segment in one of these waits to be evacuated."""
