"""Whether a session answers: the states of its connection, as a table. Pure.

| link | commands | a task under way | the connection |
|---|---|---|---|
| ANSWERING | answered | goes on | open |
| UNREAD | wait in the wire | goes on; its replies wait | open: the client does not read |
| ENDED | dropped | goes on until it waits for the client | closes once the last reply is sent |
| GONE | dropped | goes on until it waits for the client | gone |

Beside it, in any of these, a task may be under way (a message's content, a command that waits), and the
dialogue has its own state (`esmtp.states`). A session leaves its door when it is GONE and without a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from mqcd.core.states import following


class Link(Enum):
    """The state of a session's connection."""

    ANSWERING = auto()
    UNREAD = auto()
    ENDED = auto()
    GONE = auto()


OVER = (Link.ENDED, Link.GONE)
"""No reply is given any more."""


class Event(Enum):
    """What changes it."""

    FULL = auto()
    """The client does not read its replies."""
    DRAINED = auto()
    """It reads again."""
    END = auto()
    """The last reply is given."""
    LOSE = auto()
    """There is no connection any more."""


TABLE: Mapping[Event, Mapping[Link, Link]] = {
    Event.FULL: {
        Link.ANSWERING: Link.UNREAD,
        Link.UNREAD: Link.UNREAD,
        Link.ENDED: Link.ENDED,
        Link.GONE: Link.GONE,
    },
    Event.DRAINED: {
        Link.ANSWERING: Link.ANSWERING,
        Link.UNREAD: Link.ANSWERING,
        Link.ENDED: Link.ENDED,
        Link.GONE: Link.GONE,
    },
    Event.END: {Link.ANSWERING: Link.ENDED, Link.UNREAD: Link.ENDED},
    Event.LOSE: dict.fromkeys(Link, Link.GONE),
}


def after(link: Link, event: Event) -> Link:
    """The state that follows. Raises IllegalTransition."""
    return following(TABLE, event, link, "connection")
