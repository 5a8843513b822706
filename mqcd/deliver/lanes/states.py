"""The two states of a lane, each a table of state and event to the state that follows. Pure.

`Condition` says what is known of the destination, `Standing` where the lane waits for its turn. They change
in `Lane.on` and `Lane.move` alone; what a table does not have raises `IllegalTransition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Condition(Enum):
    """The condition of a lane's destination."""

    NEW = "new"
    """No transaction has ended yet."""
    OPEN = "open"
    """The last transaction ran to its end."""
    SUSPENDED = "suspended"
    """No server takes connections, or they only break: one recipient waits for the next probe."""
    PROBING = "probing"
    """Suspended, and the probe is under way."""
    FORGOTTEN = "forgotten"
    """Out of the table."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each attempt."""


class Event(Enum):
    """Events of a destination."""

    START = "start"
    """An attempt begins."""
    PASS = "pass"  # noqa: S105
    """A transaction ran to its end."""
    FAIL = "fail"
    """No host can be reached, or too many connections in a row broke."""
    UNUSED = "unused"
    """Its last connection is closed."""
    FORGET = "forget"
    """The table removes the lane."""

    __hash__ = object.__hash__


_NEW, _OPEN, _SUSPENDED = Condition.NEW, Condition.OPEN, Condition.SUSPENDED
_PROBING, _FORGOTTEN = Condition.PROBING, Condition.FORGOTTEN

CONDITIONS: Mapping[Condition, Mapping[Event, Condition]] = {
    _NEW: {
        Event.START: _NEW,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _NEW,
        Event.FORGET: _FORGOTTEN,
    },
    _OPEN: {
        Event.START: _OPEN,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _OPEN,
        Event.FORGET: _FORGOTTEN,
    },
    # Connections from before the suspension may still pass, or fail in their turn.
    _SUSPENDED: {
        Event.START: _PROBING,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _SUSPENDED,
        Event.FORGET: _FORGOTTEN,
    },
    # UNUSED: the probe ended without saying anything of the destination, for example taken back.
    _PROBING: {
        Event.START: _PROBING,
        Event.PASS: _OPEN,
        Event.FAIL: _SUSPENDED,
        Event.UNUSED: _SUSPENDED,
    },
    _FORGOTTEN: {},
}


class Standing(Enum):
    """The place where a lane waits for its turn."""

    OUT = "out"
    """Nowhere: it has nothing to start, or its window is full."""
    IN_LINE = "in line"
    """In its zone's line."""
    HELD = "held"
    """Out of line until `Slots` has a connection for it."""

    __hash__ = object.__hash__


class Move(Enum):
    """A change of standing."""

    JOIN = "join"
    TURN = "turn"
    """Its turn has come."""
    HOLD = "hold"
    RELEASE = "release"

    __hash__ = object.__hash__


STANDINGS: Mapping[Standing, Mapping[Move, Standing]] = {
    Standing.OUT: {Move.JOIN: Standing.IN_LINE, Move.HOLD: Standing.HELD},
    Standing.IN_LINE: {Move.TURN: Standing.OUT},
    Standing.HELD: {Move.RELEASE: Standing.OUT},
}


SUSPENDED = frozenset({Condition.SUSPENDED, Condition.PROBING})
