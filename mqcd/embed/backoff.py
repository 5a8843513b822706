"""A retry schedule by a program's own function. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mqcd.core.model import Envelope, Recipient
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.embed.message import Backoff

_MINUTE, _DAY = 60_000, 86_400_000
LONGEST_MS = 7 * _DAY
"""A longer backoff counts as this much."""


def five_attempts(envelope: Envelope, attempts: int) -> float | None:
    """After 1, 5 and 25 minutes, 2 and 10 hours; then never."""
    del envelope
    return 12.0 * 5.0**attempts if attempts <= 5 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class BackoffSchedule(RetrySchedule):
    """Asks `backoff` after each attempt."""

    delays: tuple[int, ...] = (15 * _MINUTE, LONGEST_MS)
    """What follows attempts with an unknown outcome."""
    maxtime: int = 365 * _DAY
    maxtime_reports: int = 365 * _DAY
    backoff: Backoff = five_attempts

    def next_due(self, recipient: Recipient, now: int, *, may_expire: bool = True) -> int | None:
        """When to try again after one more attempt that failed at `now`; None = never."""
        seconds = self.backoff(recipient.envelope, recipient.attempts + 1)
        if seconds is None:
            return None
        return now + min(max(int(seconds * 1000), 0), LONGEST_MS)
