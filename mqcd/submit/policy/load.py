"""How busy a server process is, and what its doors do about it: slow new mail down, then refuse it. Pure.

* Commits: the time from the end of a message to its 250, as the oldest that waits and the last ones show.
  While enough messages wait for it, MAIL is delayed from SLOW_MS on and refused (452) from REFUSE_MS on: what
  has been taken is then committed in about a second, instead of all clients waiting ever longer.
* Memory: below a share of what the machine, or the server's control group, has, MAIL is delayed; below a
  smaller one it is refused, and new connections get 421.
* Storage: what the queue says, at MAIL already: the content of a message that cannot be kept need not come.
"""

from __future__ import annotations

from collections.abc import Callable

from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import Reason

SLOW_MS = 400
REFUSE_MS = 800
SLOW_WAITING = 16
"""Messages that wait to be committed, below which nothing is delayed: a slow disk alone is no overload."""
REFUSE_WAITING = 32
MOST_DELAY_MS = 1000
_HALF_LIFE_MS = 500
"""A past commit counts half as long after so much time."""
_SLOW_PERCENT = 4
_REFUSE_PERCENT = 2

_BUSY = Reply(code=452, status="4.3.1", text="Too many messages at once, try again later")
_NO_MEMORY = Reply(code=452, status="4.3.1", text="Memory is short, try again later")
_NO_STORAGE = Reply(code=452, status="4.3.1", text="The queue cannot take mail now, try again later")
_CLOSED = Reply(code=421, status="4.3.1", text="Resources are short, try again later")


class Load:
    """One for all doors of a process. `now` is monotonic, in ms."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._begun: dict[int, int] = {}
        """When each commit under way began; the oldest first."""
        self._count = 0
        self._recent = 0.0
        self._at = 0
        self._memory = (1, 1)
        self.refusing = ""
        """Why the queue takes no mail; "" = it does."""

    def begin(self) -> int:
        """A message waits to be committed; names it for `end`."""
        self._count += 1
        self._begun[self._count] = self._now()
        return self._count

    def end(self, number: int) -> None:
        """It is committed, or has failed."""
        now = self._now()
        self._recent = max(self._decayed(now), now - self._begun.pop(number))
        self._at = now

    def remember(self, available: int, total: int) -> None:
        """Octets of memory that are left, and in all."""
        self._memory = available, total

    @property
    def latency(self) -> int:
        """Time, ms, that a commit takes now."""
        now = self._now()
        oldest = next(iter(self._begun.values()), now)
        return max(now - oldest, int(self._decayed(now)))

    @property
    def delay(self) -> int:
        """Time, ms, that the reply to MAIL has to wait."""
        if self._has_less(_SLOW_PERCENT):
            return MOST_DELAY_MS
        if len(self._begun) < SLOW_WAITING:
            return 0
        latency = self.latency
        return min(latency, MOST_DELAY_MS) if latency >= SLOW_MS else 0

    def refusal(self) -> tuple[Reason, Reply] | None:
        """Why no message may begin now."""
        if self.refusing:
            return Reason.STORE, _NO_STORAGE
        if self._has_less(_REFUSE_PERCENT):
            return Reason.OVERLOAD, _NO_MEMORY
        if len(self._begun) >= REFUSE_WAITING and self.latency >= REFUSE_MS:
            return Reason.OVERLOAD, _BUSY
        return None

    def closed(self) -> tuple[Reason, Reply] | None:
        """Why no client may connect now."""
        return (Reason.OVERLOAD, _CLOSED) if self._has_less(_REFUSE_PERCENT) else None

    def _decayed(self, now: int) -> float:
        return self._recent * 0.5 ** ((now - self._at) / _HALF_LIFE_MS) if self._recent else 0.0

    def _has_less(self, percent: int) -> bool:
        available, total = self._memory
        return available * 100 < total * percent
