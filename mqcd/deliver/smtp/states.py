"""The states of a client's SMTP session, as a table of state and event to the state that follows. Pure.

`Handshake.on` alone changes the state; an event that the table does not have raises `IllegalTransition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """The state of a session, which determines the caller's next action."""

    HANDSHAKE = "handshake"
    """Greeting, hello, login: send what there is and hand in what arrives, as in all states of `WAITING`."""
    TLS = "tls"
    """Turn the connection to TLS, then call `tls_started`."""
    READY = "ready"
    """Begin a transaction, or quit. `outcomes` are those of the last one."""
    ENVELOPE = "envelope"
    """MAIL, RCPT and DATA go out, and their replies come."""
    CONTENT = "content"
    """Send what `content` makes of the next chunk."""
    FULL = "full"
    """As many chunks wait for their replies as the server may be sent ahead."""
    REFUSED = "refused"
    """The content was refused before its end; replies to chunks that are out are still to come."""
    DOT = "dot"
    """The end of the content is out and not answered: a connection lost now means possibly delivered."""
    QUIT = "quit"
    """QUIT is out; each recipient has its outcome."""
    ENDED = "ended"
    """Close. `outcomes` are those of the last transaction, `end` says why."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each reply."""


class Event(Enum):
    """Events that change the state."""

    TLS_GRANTED = "STARTTLS was accepted"
    TLS_STARTED = "TLS stands"
    BEGIN = "a transaction begins"
    GO_AHEAD = "the server takes the content"
    FULL = "no further chunk may be sent ahead"
    ROOM = "a further chunk may be sent"
    CONTENT_REFUSED = "a chunk was refused"
    CONTENT_SENT = "the end of the content was sent"
    DONE = "no reply is to come any more, but perhaps that to QUIT"
    QUIT = "QUIT was sent"
    END = "the session is over"

    __hash__ = object.__hash__


STATES: Mapping[State, Mapping[Event, State]] = {
    State.HANDSHAKE: {
        Event.TLS_GRANTED: State.TLS,
        Event.DONE: State.READY,
        Event.END: State.ENDED,
    },
    State.TLS: {Event.TLS_STARTED: State.HANDSHAKE, Event.END: State.ENDED},
    State.READY: {Event.BEGIN: State.ENVELOPE, Event.QUIT: State.QUIT, Event.END: State.ENDED},
    State.ENVELOPE: {
        Event.GO_AHEAD: State.CONTENT,
        Event.DONE: State.READY,
        Event.END: State.ENDED,
    },
    State.CONTENT: {
        Event.FULL: State.FULL,
        Event.CONTENT_REFUSED: State.REFUSED,
        Event.CONTENT_SENT: State.DOT,
        Event.END: State.ENDED,
    },
    State.FULL: {
        Event.ROOM: State.CONTENT,
        Event.CONTENT_REFUSED: State.REFUSED,
        Event.END: State.ENDED,
    },
    State.REFUSED: {
        Event.CONTENT_REFUSED: State.REFUSED,
        Event.DONE: State.READY,
        Event.END: State.ENDED,
    },
    # A chunk before the last may be refused when the last one is out already.
    State.DOT: {Event.CONTENT_REFUSED: State.DOT, Event.DONE: State.READY, Event.END: State.ENDED},
    State.QUIT: {Event.END: State.ENDED},
    State.ENDED: {},
}

WAITING = frozenset(
    {State.HANDSHAKE, State.ENVELOPE, State.FULL, State.REFUSED, State.DOT, State.QUIT},
)
"""The session goes on when a reply comes."""
DECIDED = frozenset({State.READY, State.QUIT, State.ENDED})
"""Each recipient of the last transaction has its outcome."""
