"""The connection limit of a destination, from the results of its transactions. Pure.

The window starts at `START_WINDOW`. It grows by one for each window's worth of good transactions, to at most
`START_WINDOW` more than the connections in use, and not while the server takes `SLOWER` times as long as at
its best. It shrinks by one when a server defers a whole transaction, and halves when a connection breaks.
When one more connection is refused it halves, not below the connections that work, and stays there for
`CEILING_MS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mqcd.core.value import value

START_WINDOW = 5.0
"""Connections that an unknown destination may have at once."""
PERIOD_MS = 300_000
"""Period for which the best pace of a lane is its measure: until the end of the next one."""
SLOWER = 2.0
"""A server slower than its best by this factor has enough connections."""
CEILING_MS = 60_000
"""Time for which the number of connections that a server accepted limits the window."""
SLACK_MS = 20
"""Differences up to this are noise."""


class Feedback(Enum):
    """What a transaction says about the server's capacity."""

    GOOD = "good"
    """At least one recipient was delivered or bounced."""
    NEUTRAL = "neutral"
    """Every recipient was deferred, each by a reply of its own."""
    PUSHED_BACK = "pushed back"
    """The server deferred the whole transaction."""


@dataclass(slots=True)
class Pace:
    """The pace of a lane's server, now and at its best."""

    recent: float = 0.0
    """Time of a transaction, the last eight or so weighing most, ms; 0 = none yet."""
    best: float = 0.0
    """The least of `recent` in this period; 0 = none yet."""
    before: float = 0.0
    """The least of the period before."""
    since: int = 0
    """When this period began."""

    def measure(self, took: int, now: int) -> bool:
        """Count one transaction; returns whether the server is still about as fast as at its best."""
        recent = self.recent
        self.recent = recent = recent + (took - recent) / 8 if recent else float(max(took, 1))
        if now - self.since >= PERIOD_MS:
            self.before, self.best, self.since = self.best, recent, now
        elif recent < self.best or not self.best:
            self.best = recent
        if recent <= SLACK_MS:
            return True
        best = self.before if 0 < self.before < self.best else self.best
        return recent <= best * SLOWER + SLACK_MS


@value
class Window:
    """The connection limit of a lane. Each change makes a new one."""

    size: float = START_WINDOW
    ceiling: float = 0.0
    """The most that it may grow to, until `ceiling_until`."""
    ceiling_until: int = 0

    def after(self, feedback: Feedback, quick: bool, connections: int, top: int, now: int) -> Window:
        """The window after a transaction, with so many `connections` in use; `top` is the policy's limit."""
        if feedback is Feedback.PUSHED_BACK:
            return self._sized(max(1.0, self.size - 1))
        if feedback is Feedback.GOOD and quick:
            most = min(top, self.ceiling) if now < self.ceiling_until else top
            if self.size < most and self.size < connections + START_WINDOW:
                return self._sized(min(self.size + 1 / self.size, most))
        return self

    def halved(self) -> Window:
        """A connection broke."""
        return self._sized(max(1.0, self.size / 2))

    def refused(self, working: int, now: int) -> Window:
        """One more connection was refused while `working` others stand: those are what the server takes."""
        size = max(1.0, self.size / 2, float(working))
        return Window(size=size, ceiling=size, ceiling_until=now + CEILING_MS)

    def closed(self) -> Window:
        """The destination is suspended."""
        return self._sized(1.0)

    def _sized(self, size: float) -> Window:
        return Window(size=size, ceiling=self.ceiling, ceiling_until=self.ceiling_until)


FIRST_WINDOW = Window()
"""Of an unknown destination."""
