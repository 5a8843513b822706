"""How busy a server process is, and what its doors do about it: slow new mail down, then refuse it. Pure.

* Commits: as many messages may be on their way to their 250 as are committed in about SLOW_MS. This window
  follows the time from the end of a message to its 250: it shrinks where that is longer, and longer than with
  few messages, and grows while messages wait for a place in it. MAIL waits for a place, in order, at most
  MOST_WAIT_MS, then it is refused (452): so what is taken is committed within a second, as far as the disk
  does that for LEAST messages.

  | of a session's message | none | waits in line | coming (place) | committing (place) |
  |---|---|---|---|---|
  | `enter`: MAIL | coming, if there is room | | coming anew, or none | |
  | `line_up`: no room for MAIL | waits in line | | | |
  | a place is free, it is the first in line | | coming: it is called | | |
  | `leave`: its wait is over | none | none | coming | |
  | COMING_MS after it got its place | | | none | |
  | `give_up`: refused, or its session has ended | | | none: the next in line has its place | |
  | `come_back`: a recipient is accepted after all | coming | | | |
  | `begin`: its content has come | committing | | committing | |
  | `end` | | | | none: the next in line has its place |

* Memory: below a share of what the machine, or the server's control group, has, MAIL is delayed; below a
  smaller one it is refused, and new connections get 421.
* Storage: what the queue says, at MAIL already: the content of a message that cannot be kept need not come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import Reason

SLOW_MS = 400
"""A commit that takes longer, and LONGER times as long as the quickest, shows that too many are under way."""
LONGER = 3
TOO_SLOW_MS = 600
"""One that takes this long shows it however slow the quickest is."""
PERIOD_MS = 10_000
"""The quickest commit counts until the end of the next such period."""
LEAST = 16
"""So many messages may always be under way: a slow disk alone is no overload."""
FIRST = 32
"""The window until commits have been seen."""
MOST_WAIT_MS = 800
COMING_MS = 1000
"""Time from MAIL for which a message counts that has not come: slow clients hold no places."""
MOST_DELAY_MS = 1000
_SLOW_PERCENT = 4
_REFUSE_PERCENT = 2

BUSY = Reply(code=452, status="4.3.1", text="Too many messages at once, try again later")
_NO_MEMORY = Reply(code=452, status="4.3.1", text="Memory is short, try again later")
_NO_STORAGE = Reply(code=452, status="4.3.1", text="The queue cannot take mail now, try again later")
_CLOSED = Reply(code=421, status="4.3.1", text="Resources are short, try again later")


class Load:
    """One for all doors of a process. `now` is monotonic, in ms."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.window = float(FIRST)
        """How many messages may be on their way."""
        self._line: OrderedDict[object, Callable[[], None]] = OrderedDict()
        """By session that waits for a place, what is called when it gets one; the first in line first."""
        self._coming: dict[object, int] = {}
        """By session whose message is still to come, when it got its place; the oldest first."""
        self._committing: dict[object, int] = {}
        """By session, when its commit began."""
        self._shrunk_at = -1
        """When the window last shrank; -1 = never: then it grows by each commit."""
        self._quickest = [0, 0]
        """Time of the quickest commit of this period and of the one before, ms; 0 = none."""
        self._period = 0
        self.delay = 0
        """Time, ms, that the reply to MAIL has to wait."""
        self._memory_short = False
        self.refusing = ""
        """Why the queue takes no mail; "" = it does."""

    def begin(self, session: object) -> None:
        """The message of a session has come and waits to be committed."""
        self._coming.pop(session, None)
        self._committing[session] = self._now()

    def end(self, session: object) -> None:
        """It is committed, or has failed."""
        began, now = self._committing.pop(session), self._now()
        took = max(now - began, 1)
        slow = self._slow_ms(took, now)
        if took >= slow:
            # Once for all that began under the same window.
            if began >= self._shrunk_at:
                under_way = min(self.window, len(self._committing) + 1)
                self.window = max(under_way * slow / took, LEAST)
                self._shrunk_at = now
        elif self._line:
            self.window += 1 if self._shrunk_at < 0 else 1 / self.window
        self._serve(now)

    def _slow_ms(self, took: int, now: int) -> int:
        """From when on a commit is too slow; counts one more."""
        if now - self._period >= PERIOD_MS:
            self._period, self._quickest = now, [took, self._quickest[0]]
        self._quickest[0] = min(took, self._quickest[0] or took)
        quickest = min(filter(None, self._quickest))
        return min(max(LONGER * quickest, SLOW_MS), TOO_SLOW_MS)

    def enter(self, session: object) -> bool:
        """Take a place for a message that begins now; False: there is none at once. A session has one."""
        self._coming.pop(session, None)
        now = self._now()
        self._serve(now)
        if self._line or not self._has_room(now):
            return False
        self._coming[session] = now
        return True

    def line_up(self, session: object, call: Callable[[], None]) -> None:
        """Wait for a place, behind the others that do; calls back with it."""
        self._line[session] = call

    def leave(self, session: object) -> bool:
        """It waits no more; whether it was given a place."""
        return self._line.pop(session, None) is None

    def give_up(self, session: object) -> bool:
        """Its message does not come, or is refused so far: free the place that it has; whether it had one.
        May be called at any time."""
        if self._coming.pop(session, None) is None:
            return False
        self._serve(self._now())
        return True

    def come_back(self, session: object) -> None:
        """Its message comes after it gave up its place: it counts at once, also where there is no room."""
        self._coming[session] = self._now()

    def _serve(self, now: int) -> None:
        while self._line and self._has_room(now):
            session, call = self._line.popitem(last=False)
            self._coming[session] = now
            call()

    def _has_room(self, now: int) -> bool:
        since = now - COMING_MS
        while self._coming:
            session, at = next(iter(self._coming.items()))
            if at > since:
                break
            del self._coming[session]
        return len(self._committing) + len(self._coming) < self.window

    def memory_is(self, available: int, total: int) -> None:
        """Octets of memory that are left, and in all."""
        self.delay = MOST_DELAY_MS if available * 100 < total * _SLOW_PERCENT else 0
        self._memory_short = available * 100 < total * _REFUSE_PERCENT

    def refusal(self) -> tuple[Reason, Reply] | None:
        """Why no message may begin now."""
        if self.refusing:
            return Reason.STORE, _NO_STORAGE
        return (Reason.OVERLOAD, _NO_MEMORY) if self._memory_short else None

    def closed(self) -> tuple[Reason, Reply] | None:
        """Why no client may connect now."""
        return (Reason.OVERLOAD, _CLOSED) if self._memory_short else None
