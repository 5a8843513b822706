"""The states of a worker and the events that change them, as one table. Pure.

| state | its job | its connection | what it waits for |
|---|---|---|---|
| NEW | the first | none | its task to begin |
| OPENING | the first | none yet | a host that takes mail |
| WORKING | the present, or none between two | open | replies, the store |
| RESTING | none | open | a job, or its end; it is on the list of workers without one |
| RESERVED | none | open | the job that it is off that list for |
| RECALLED | goes back to its lane | is closed | its task, which is cancelled |
| LEAVING | none | is closed | |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """The state of a worker."""

    NEW = "new"
    OPENING = "opening"
    WORKING = "working"
    RESTING = "resting"
    RESERVED = "reserved"
    RECALLED = "recalled"
    LEAVING = "leaving"

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each message."""


class Event(Enum):
    """What changes it, and the method of `Worker` that says so."""

    BEGIN = "begin"
    """Its task begins: `run`."""
    OPENED = "opened"
    """A host takes mail: `_connect`."""
    REST = "rest"
    """There is no job for it: `_rest`."""
    RESERVE = "reserve"
    """One may come: `reserve`."""
    HAND = "hand"
    """It has come: `hand`."""
    RECALL = "recall"
    """Its attempt has lasted too long: `recall`."""
    LEAVE = "leave"
    """It is dismissed, or its task ends: `_dismiss`, `_leave`."""

    __hash__ = object.__hash__


TABLE: Mapping[State, Mapping[Event, State]] = {
    State.NEW: {Event.BEGIN: State.OPENING},
    State.OPENING: {Event.OPENED: State.WORKING, Event.RECALL: State.RECALLED, Event.LEAVE: State.LEAVING},
    State.WORKING: {Event.REST: State.RESTING, Event.RECALL: State.RECALLED, Event.LEAVE: State.LEAVING},
    State.RESTING: {Event.RESERVE: State.RESERVED, Event.LEAVE: State.LEAVING},
    State.RESERVED: {Event.HAND: State.WORKING, Event.REST: State.RESTING, Event.LEAVE: State.LEAVING},
    State.RECALLED: {Event.LEAVE: State.LEAVING},
    # Dismissed; then its task ends.
    State.LEAVING: {Event.LEAVE: State.LEAVING},
}
