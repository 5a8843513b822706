"""The retry schedule: when a recipient is tried again, when a delay is reported, when it expires.

Delays are taken in order, the last repeats. Jitter only lengthens a delay and comes from (SPID, QID,
attempt), so that mail which failed together does not come back together, and a rerun gives the same
answer. Age is judged only after a failed attempt: mail that waited out a long stop gets its attempt.
While the clock is in doubt it is not judged at all.

A delay is reported once for each recipient, where the sender asked for it (NOTIFY=DELAY, RFC 3461, 4.1)
or, by setting, where they did not say what they want to hear of; the null sender never is (RFC 5321, 4.5.5).
Pure.
"""

from __future__ import annotations

import zlib
from dataclasses import field

from mqcd.core.model import Recipient
from mqcd.core.queueing.holding import Holding
from mqcd.core.queueing.spid import time_of
from mqcd.core.smtp.dsn import parameters
from mqcd.core.value import value

LAST_CHANCE_MS = 1000
"""The least time between a failure and a last attempt brought forward to the age limit."""


@value
class RetrySchedule:
    """Delays and age limits, all in ms."""

    delays: tuple[int, ...]
    maxtime: int
    """Age at which ordinary mail expires."""
    maxtime_reports: int
    """Age at which reports expire; never more than `maxtime`."""
    jitter: float = 0.0
    """Share of a delay that may be added, 0 to 1."""
    elsewhere: int = 0
    """The longest delay of any other schedule that mail of the same queue may follow, or the longest time for
    which a client may have mail held; 0 = there is none."""
    warning: int = 0
    """Age at which a delay report is sent; 0 = never."""
    warn_all: bool = False
    """Send it also where the sender did not say which reports it wants."""
    holding: Holding = field(default_factory=Holding)
    """Domains whose mail is held instead."""

    def __post_init__(self) -> None:
        if not self.delays or min(self.delays) <= 0:
            raise ValueError("a retry schedule needs at least one delay, each above 0")

    @property
    def longest(self) -> int:
        """No due time is further ahead than this, ms."""
        return int(max(*self.delays, self.elsewhere) * (1 + self.jitter)) + 1

    @property
    def shortest_life(self) -> int:
        """No recipient younger than this is past an age limit, ms."""
        return min(self.maxtime_reports, self.maxtime)

    @property
    def first_age(self) -> int:
        """No recipient younger than this is past an age limit or due for a delay report, ms."""
        return min(self.shortest_life, self.warning or self.shortest_life)

    def delay(self, recipient: Recipient, attempts: int) -> int:
        """How long to wait after failure number `attempts` (from 1), ms, jitter included."""
        return self.delay_of(recipient.envelope.spid, recipient.qid, attempts)

    def delay_of(self, spid: int, qid: int, attempts: int) -> int:
        """The same for a recipient of which only the name is known."""
        base = self.delays[min(attempts, len(self.delays)) - 1]
        if not self.jitter:
            return base
        seed = b"%x-%x-%x" % (spid, qid, attempts)
        return base + int(base * self.jitter * zlib.crc32(seed) / 0x1_0000_0000)

    def expires(self, recipient: Recipient, now: int) -> int:
        """When the recipient's age limit is reached, ms."""
        limit = self.shortest_life if recipient.is_report else self.maxtime
        return _received(recipient, now) + limit

    def warns(self, recipient: Recipient, now: int) -> int | None:
        """When the recipient's delay report is due, ms; None = never, or it was sent."""
        if not self.warning or recipient.warned or recipient.is_report:
            return None
        if not recipient.dsn and not self.warn_all:
            return None
        notify = parameters(recipient.dsn).get("NOTIFY")
        wanted = self.warn_all if notify is None else "DELAY" in notify.upper().split(",")
        at = _received(recipient, now) + self.warning
        return at if wanted and at < self.expires(recipient, now) else None

    def held_until(self, recipient: Recipient, now: int) -> int:
        """Until when it may rest for its domain, once it was tried, ms: its age limit."""
        return max(self.expires(recipient, now), now + self.delays[0])

    def next_due(self, recipient: Recipient, now: int, *, may_expire: bool = True) -> int | None:
        """When to try again after one more attempt that failed at `now`; None = it has expired.

        A retry that would come after the age limit is brought forward to it, so that mail does not
        outlive its limit by a whole delay; likewise one that would come after the time at which the sender is
        due for a delay report. Without `may_expire` there is neither.
        """
        due = now + self.delay(recipient, recipient.attempts + 1)
        if not may_expire:
            return due
        limit = self.expires(recipient, now)
        if now >= limit:
            return None
        warns = self.warns(recipient, now)
        if warns is not None and warns > now:
            limit = warns
        return min(due, max(limit, now + LAST_CHANCE_MS))

    def after_unknown(self, recipient: Recipient, now: int) -> int:
        """When to try again after a crash hid the outcome; `recipient.unknowns` counts this one.

        The first time at once, the second after the first delay, from the third the longest; brought forward
        to its age limit as any other retry, but never so once it is past that.
        """
        if recipient.unknowns <= 1:
            return now
        due = now + self.delay(recipient, 1 if recipient.unknowns == 2 else len(self.delays))
        limit = self.expires(recipient, now)
        return min(due, max(limit, now + LAST_CHANCE_MS)) if limit > now else due


def _received(recipient: Recipient, now: int) -> int:
    """When it was accepted, or released if that came later (RFC 4865), ms.

    Mail that says it will be came while the clock was ahead; its SPID has the better time.
    """
    envelope = recipient.envelope
    received = envelope.received
    if received > now:
        received = min(received, time_of(recipient.spid))
    return envelope.release if received < envelope.release <= now else received
