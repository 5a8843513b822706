"""When the client of a session has taken too long. Pure.

| limit | on | counted while |
|---|---|---|
| `timeout` of the listener | a line, a part of the content, room for replies | the client owes it |
| MESSAGE_MS, and 1 ms for each octet | the content of one message, so that none drips for ever | the same |
| the same, for each octet until it was refused | that of a refused one, once SESSION_MS are over | the same |
| SESSION_MS | the session, but for a task under way, while the client reads its replies | always |

What the server makes the client wait for does not count, such as a commit or a delay. `owing_since` says
since when the client owes something:

| | by |
|---|---|
| it owes, if it did not: `owe` | the greeting is written, or TLS begins or has begun |
| | all that came is answered, and no task runs |
| | a task waits for octets (`Wire.wait`) |
| | it does not read its replies |
| anew: both | the last reply is given: it is to read it, and to close |
| it owes nothing: `owes_nothing` | a line or content is read |
| | TLS has begun |
| | it reads its replies again |
| | it has become the server (ATRN) |

| link | its task | silent for `timeout` | SESSION_MS over | MESSAGE_MS over |
|---|---|---|---|---|
| ANSWERING | none | INTERRUPT | INTERRUPT | |
| ANSWERING | under way | INTERRUPT | | INTERRUPT |
| UNREAD | either | CUT | CUT | |
| ENDED | either | CUT | CUT, if there is no `timeout` | |
| GONE | under way | | | |
"""

from __future__ import annotations

from enum import Enum, auto

from mqcd.core.ports import Clock
from mqcd.submit.session.link_states import Link

MESSAGE_MS = 600_000
"""Time limit for a message's content, plus 1 ms for each octet of it."""
SESSION_MS = 3_600_000
"""Maximum length of a session; a message under way may finish."""


class Overdue(Enum):
    """What becomes of a session whose client has taken too long."""

    INTERRUPT = auto()
    """It ends with a reply, as soon as it is not committing a message."""
    CUT = auto()
    """It loses its connection: it does not take even the last reply."""


class Deadlines:
    """The times of one session, monotonic, in ms."""

    __slots__ = ("_clock", "_counted_to", "_kept", "_timeout", "_waited", "began", "content", "owing_since")

    def __init__(self, clock: Clock, timeout: int) -> None:
        """`timeout`: in ms, 0 = none."""
        self._clock = clock
        self._timeout = timeout
        self.began = clock.monotonic()
        self.content = 0
        """Octets of this message's content so far."""
        self._kept: int | None = None
        """Those of them that came before it was refused; None = it is not."""
        self._waited = 0
        """How long the server has waited for them, in waits that have ended."""
        self._counted_to = 0
        """Up to when `_waited` holds the time that the client owes."""
        self.owing_since = 0
        """0 = the client owes nothing."""

    def owe(self) -> None:
        """The server waits for the client; that may have begun before."""
        if not self.owing_since:
            self.owing_since = self._clock.monotonic() or 1

    def owes_nothing(self) -> None:
        """The client has done what the server waited for."""
        self.owing_since = 0

    def begin_message(self) -> None:
        """A message's content follows."""
        self._waited = self.content = 0
        self._kept = None

    def refuse_message(self) -> None:
        """What still comes of this message's content is dropped."""
        self._kept = self.content

    def waited(self) -> None:
        """A wait for content has ended, whatever came."""
        if self.owing_since:
            now = self._clock.monotonic()
            self._waited += now - max(self.owing_since, self._counted_to)
            self._counted_to = now

    def spend(self, time: int) -> None:
        """Count `time` ms as waited for this message."""
        self._waited += time

    def is_over(self, now: int) -> bool:
        """Whether the session has lasted too long, if no message is under way."""
        return now - self.began >= SESSION_MS

    def overdue(self, now: int, link: Link, *, busy: bool) -> Overdue | None:
        """What to do with the session, if anything, by the table; `busy`: its task is under way."""
        if link is Link.GONE:
            return None
        since = self.owing_since
        silent = since > 0 and 0 < self._timeout <= now - since
        if link is not Link.ANSWERING:
            lasts = link is Link.ENDED and self._timeout > 0
            return Overdue.CUT if silent or (self.is_over(now) and not lasts) else None
        waiting = now - max(since, self._counted_to) if since else 0
        late = self._waited + waiting >= MESSAGE_MS + self._counted(now) if busy else self.is_over(now)
        return Overdue.INTERRUPT if silent or late else None

    def _counted(self, now: int) -> int:
        """The octets that give this message time. Within the session's time a client may send a refused one
        to its end, as it sees the reply only then; later nothing that is dropped makes the session longer."""
        return self.content if self._kept is None or not self.is_over(now) else self._kept
