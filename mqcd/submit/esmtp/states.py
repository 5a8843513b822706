"""The states of an SMTP session at the door and the events that change them, as one table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp import replies

_HELLO_FIRST = Reply(code=503, status="5.5.1", text="Say EHLO first")
_NESTED = Reply(code=503, status="5.5.1", text="A message is already begun, RSET or DATA")
_IN_MESSAGE = Reply(code=503, status="5.5.1", text="AUTH is not for the middle of a message")
_MIXED = Reply(code=503, status="5.5.1", text="A message in chunks goes on with BDAT")
_TLS_IN_MESSAGE = Reply(code=503, status="5.5.1", text="STARTTLS is not for the middle of a message")
_CALL_IN_MESSAGE = Reply(code=503, status="5.5.1", text="Held mail is not for the middle of a message")
_NO_MAIL = Reply(code=503, status="5.5.1", text="MAIL comes first")


class _Quick(Enum):
    """Members are keys in the lookup for every command: hashed by identity, faster than Enum's own hash."""

    __hash__ = object.__hash__


class State(_Quick):
    """The state of a session."""

    START = auto()
    """The server has sent its greeting."""
    READY = auto()
    """EHLO or HELO taken; no message is begun."""
    REFUSED = auto()
    """The last MAIL was refused, and the client may not know it yet."""
    ENVELOPE = auto()
    """MAIL taken; recipients follow."""
    CONTENT = auto()
    """354 sent, or a chunk announced; the content follows, up to its end."""
    CHUNKS = auto()
    """A chunk that is not the last was taken; BDAT follows."""
    LOGIN = auto()
    """AUTH taken; a line is the response to a challenge."""
    CHECKING = auto()
    """A password is compared with its hash; the client waits."""
    HANDSHAKE = auto()
    """STARTTLS taken; TLS follows."""
    REVERSED = auto()
    """ATRN taken; the client is the server from here on."""
    CLOSED = auto()
    """The last reply is given."""


class Event(_Quick):
    """What may change a state: a command that is taken; from DROP on, what follows from commands."""

    HELLO = auto()
    MAIL = auto()
    RCPT = auto()
    DATA = auto()
    CHUNK = auto()
    """BDAT."""
    RSET = auto()
    AUTH = auto()
    STARTTLS = auto()
    CALL = auto()
    """ETRN, ATRN."""
    REVERSE = auto()
    """There is mail for ATRN."""
    OTHER = auto()
    """NOOP, VRFY, HELP, PROXY, and before mandatory TLS the commands that are refused: changes no state."""
    QUIT = auto()
    DROP = auto()
    """MAIL is refused, or the message begun is given up."""
    FORGET = auto()
    """EHLO or HELO is refused after all."""
    MORE = auto()
    """A chunk that is not the last is in."""
    SENT = auto()
    """The content was replied to."""
    CHALLENGE = auto()
    """A login goes on with a challenge."""
    CHECK = auto()
    """A login has come to its password."""
    IDENTIFIED = auto()
    """A login was good."""
    DENIED = auto()
    """A login was not."""
    SECURED = auto()
    """TLS has begun."""
    CLOSE = auto()
    """A limit on the client is exceeded."""


TABLE: Mapping[State, Mapping[Event, State | Reply]] = {
    State.START: {
        Event.HELLO: State.READY,
        Event.MAIL: _HELLO_FIRST,
        Event.RCPT: _NO_MAIL,
        Event.DATA: _NO_MAIL,
        Event.CHUNK: _NO_MAIL,
        Event.RSET: State.START,
        Event.AUTH: _HELLO_FIRST,
        Event.STARTTLS: _HELLO_FIRST,
        Event.SECURED: State.START,
        Event.CALL: _HELLO_FIRST,
        Event.OTHER: State.START,
        Event.QUIT: State.CLOSED,
        Event.DROP: State.START,
        Event.CLOSE: State.CLOSED,
    },
    State.READY: {
        Event.HELLO: State.READY,
        Event.MAIL: State.ENVELOPE,
        Event.RCPT: _NO_MAIL,
        Event.DATA: _NO_MAIL,
        Event.CHUNK: _NO_MAIL,
        Event.RSET: State.READY,
        Event.AUTH: State.LOGIN,
        Event.STARTTLS: State.HANDSHAKE,
        Event.CALL: State.READY,
        Event.REVERSE: State.REVERSED,
        Event.OTHER: State.READY,
        Event.FORGET: State.START,
        Event.QUIT: State.CLOSED,
        Event.DROP: State.REFUSED,
        Event.CLOSE: State.CLOSED,
    },
    State.REFUSED: {
        Event.HELLO: State.READY,
        Event.MAIL: State.ENVELOPE,
        Event.RCPT: _NO_MAIL,
        Event.DATA: _NO_MAIL,
        Event.CHUNK: _NO_MAIL,
        Event.RSET: State.READY,
        Event.AUTH: State.LOGIN,
        Event.STARTTLS: State.HANDSHAKE,
        Event.CALL: State.REFUSED,
        Event.REVERSE: State.REVERSED,
        Event.OTHER: State.REFUSED,
        Event.QUIT: State.CLOSED,
        Event.DROP: State.REFUSED,
        Event.CLOSE: State.CLOSED,
    },
    State.ENVELOPE: {
        Event.HELLO: State.READY,
        Event.MAIL: _NESTED,
        Event.RCPT: State.ENVELOPE,
        Event.DATA: State.CONTENT,
        Event.CHUNK: State.CONTENT,
        Event.RSET: State.READY,
        Event.AUTH: _IN_MESSAGE,
        Event.STARTTLS: _TLS_IN_MESSAGE,
        Event.CALL: _CALL_IN_MESSAGE,
        Event.OTHER: State.ENVELOPE,
        Event.QUIT: State.CLOSED,
        Event.DROP: State.REFUSED,
        Event.CLOSE: State.CLOSED,
    },
    State.CHUNKS: {
        Event.HELLO: State.READY,
        Event.MAIL: _NESTED,
        Event.RCPT: _MIXED,
        Event.DATA: _MIXED,
        Event.CHUNK: State.CONTENT,
        Event.RSET: State.READY,
        Event.AUTH: _IN_MESSAGE,
        Event.STARTTLS: _TLS_IN_MESSAGE,
        Event.CALL: _CALL_IN_MESSAGE,
        Event.OTHER: State.CHUNKS,
        Event.QUIT: State.CLOSED,
        Event.DROP: State.REFUSED,
        Event.CLOSE: State.CLOSED,
    },
    State.LOGIN: {
        Event.CHALLENGE: State.LOGIN,
        Event.CHECK: State.CHECKING,
        Event.IDENTIFIED: State.READY,
        Event.DENIED: State.READY,
        Event.CLOSE: State.CLOSED,
    },
    State.CHECKING: {
        Event.IDENTIFIED: State.READY,
        Event.DENIED: State.READY,
        Event.CLOSE: State.CLOSED,
    },
    State.CONTENT: {Event.MORE: State.CHUNKS, Event.SENT: State.READY, Event.DROP: State.REFUSED},
    State.HANDSHAKE: {Event.SECURED: State.START},
    State.REVERSED: {},
    State.CLOSED: {},
}
"""For each state and event the state that follows, or the reply to a command that is out of order. RCPT, CALL
and OTHER keep the state: `dialogue` does not move by them, but only asks whether they are in order."""

EARLY: Mapping[State, Reply] = {
    State.CONTENT: replies.TOO_EARLY,
    State.HANDSHAKE: replies.BEFORE_TLS,
    State.REVERSED: replies.BEFORE_REVERSAL,
}
"""Where nothing may lie behind a command: content that would be read as commands, commands that would be read
as content (RFC 2920, 3.1), or what somebody put before TLS (CVE-2011-0411)."""
