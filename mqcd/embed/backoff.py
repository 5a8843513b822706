"""A retry schedule by a program's own function. Pure, but for the log of its faults."""

from __future__ import annotations

import logging

from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.core.value import value
from mqcd.embed.message import Backoff

log = logging.getLogger(__name__)

_MINUTE, _DAY = 60_000, 86_400_000
LONGEST_MS = 7 * _DAY
"""A longer backoff counts as this much."""


def five_attempts(envelope: Envelope, attempts: int) -> float | None:
    """After 1, 5 and 25 minutes, 2 and 10 hours; then never."""
    del envelope
    return 12.0 * 5.0**attempts if attempts <= 5 else None


@value
class BackoffSchedule(RetrySchedule):
    """Asks `backoff` after each attempt."""

    delays: tuple[int, ...] = (15 * _MINUTE, LONGEST_MS)
    """What follows attempts with an unknown outcome; the first, also a `backoff` that fails."""
    maxtime: int = 365 * _DAY
    maxtime_reports: int = 365 * _DAY
    backoff: Backoff = five_attempts

    def next_due(self, recipient: Recipient, now: int, *, may_expire: bool = True) -> int | None:
        """When to try again after one more attempt that failed at `now`; None = never."""
        try:
            seconds = self.backoff(recipient.envelope, recipient.attempts + 1)
            return None if seconds is None else now + int(min(max(seconds * 1000, 0), LONGEST_MS))
        except Exception:
            name = format_spid(recipient.spid)
            log.exception("%s: the backoff failed: it is tried again in %d s", name, self.delays[0] // 1000)
            return now + self.delays[0]
