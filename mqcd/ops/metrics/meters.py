"""Counters of business events: an observer that only adds to plain numbers.

It stands on the path of every recipient, so nothing here formats, allocates or knows of Prometheus;
`mqcd.ops.metrics.metrics` reads the numbers on request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from mqcd.core.figures import Distribution
from mqcd.core.model import Amended, Attempt, Bounced, Deferred, Delivered, Expired, Origin, Recipient
from mqcd.core.observing.null_observer import NullObserver
from mqcd.core.ports import Refusal
from mqcd.core.queueing.amendment import purged

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

QUEUED_MS = (
    *(50, 100, 250, 500, SECOND, 5 * SECOND, 30 * SECOND),
    *(MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, 24 * HOUR, 72 * HOUR),
)
ATTEMPT_MS = (5, 10, 25, 50, 100, 250, 500, SECOND, 2500, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE)
MAX_REASONS = 40
"""Label values of one metric; reasons are fixed words, but a mistake must not fill the memory."""
OTHER = "other"


class Spread:
    """Counts durations, ms, or sizes, octets, by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        """Count one; a clock that went back makes none below nought."""
        if value < 0:
            value = 0
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def in_seconds(self) -> Distribution:
        """The counts so far, with bounds and sum in seconds."""
        return self.scaled(1000)

    def scaled(self, per: int) -> Distribution:
        """The counts so far, in units of which each holds `per` of ours."""
        bounds = [bound / per for bound in self.bounds]
        return Distribution(bounds=bounds, counts=list(self.counts), total=self.total / per)


class Reasons:
    """Counts by a short fixed word."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, reason: str) -> None:
        """Count one; words beyond MAX_REASONS count as "other"."""
        if reason not in self.counts and len(self.counts) >= MAX_REASONS:
            reason = OTHER
        self.counts[reason] = self.counts.get(reason, 0) + 1


class Meters(NullObserver):
    """`core.ports.Observer` that counts. Recipients each, unless a name says otherwise.

    A new way in which recipients leave the queue needs a count here, and a term in `Ledger._difference`.
    """

    def __init__(self) -> None:
        self.accepted_messages = 0
        self.accepted_octets = 0
        """Of messages, each counted once."""
        self.accepted_recipients = 0
        self.reports = 0
        """Messages."""
        self.attempts = 0
        self.delivered_recipients = 0
        self.deferred_recipients = 0
        self.possibly_delivered = 0
        self.bounced_recipients = 0
        self.expired_recipients = 0
        self.silent_ends = 0
        """Bounced or expired recipients whose sender is null: they leave at once, without a report."""
        self.failed_reports = 0
        """Those of them whose message was a report."""
        self.reported_recipients = 0
        self.unknown_outcomes = 0
        self.connections = 0
        self.failed_connections = 0
        self.discarded_bounces = Reasons()
        self.amended_recipients = Reasons()
        """By action."""
        self.purged_recipients = 0
        """Removals whose grace is over, and that are not reported."""
        self.refusals = Reasons()
        self.queued = Spread(QUEUED_MS)
        self.attempt_durations = Spread(ATTEMPT_MS)

    def accepted(self, at: int, recipients: Sequence[Recipient]) -> None:
        first = recipients[0]
        self.accepted_messages += 1
        self.accepted_octets += first.size
        self.accepted_recipients += len(recipients)
        if first.envelope.origin is Origin.REPORT:
            self.reports += 1

    def attempted(self, at: int, recipients: Sequence[Recipient], destination: str) -> None:
        self.attempts += len(recipients)

    def delivered(self, at: int, recipient: Recipient, verdict: Delivered) -> None:
        self.delivered_recipients += 1
        self.queued.add(at - recipient.envelope.received)
        self.attempt_durations.add(verdict.attempt.attempt_ms)

    def deferred(self, at: int, recipient: Recipient, verdict: Deferred) -> None:
        self.deferred_recipients += 1
        self.possibly_delivered += verdict.possibly_delivered
        self.attempt_durations.add(verdict.attempt.attempt_ms)

    def bounced(self, at: int, recipient: Recipient, verdict: Bounced) -> None:
        self.bounced_recipients += 1
        self._failed(recipient)
        self.attempt_durations.add(verdict.attempt.attempt_ms)

    def expired(self, at: int, recipient: Recipient, verdict: Expired) -> None:
        self.expired_recipients += 1
        self._failed(recipient)
        self.attempt_durations.add(verdict.attempt.attempt_ms)

    def _failed(self, recipient: Recipient) -> None:
        self.silent_ends += recipient.is_report
        self.failed_reports += recipient.envelope.origin is Origin.REPORT

    def reported(self, at: int, recipient: Recipient, report_spid: int) -> None:
        self.reported_recipients += 1

    def discarded(self, at: int, recipient: Recipient, reason: str) -> None:
        self.discarded_bounces.add(reason)

    def amended(self, at: int, recipient: Recipient, verdict: Amended) -> None:
        self.amended_recipients.add(verdict.batch.action.value)

    def purged(self, at: int, recipient: Recipient) -> None:
        self.purged_recipients += purged(recipient) is None

    def outcome_unknown(self, at: int, recipient: Recipient) -> None:
        self.unknown_outcomes += 1

    def refused(self, at: int, refusal: Refusal) -> None:
        self.refusals.add(refusal.reason)

    def connected(self, at: int, attempt: Attempt) -> None:
        self.connections += 1

    def connect_failed(self, at: int, attempt: Attempt, reason: str) -> None:
        self.failed_connections += 1
