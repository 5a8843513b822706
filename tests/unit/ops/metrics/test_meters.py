"""What is counted, and how often."""

from __future__ import annotations

from dataclasses import replace

from mqcd.core.model import Deferred, Envelope, Origin, Recipient
from mqcd.core.ports import Refusal
from mqcd.core.smtp.reply import Reply
from mqcd.ops.metrics.meters import MAX_REASONS, OTHER, Meters, Reasons, Spread
from tests.contract.mail import ATTEMPT, bounced, deferred, delivered, expired

MAIL = Recipient(
    envelope=Envelope(spid=2, sender="s@example.com", received=1000), size=70, qid=1, address="a@example.org"
)
REPORT = replace(MAIL, envelope=replace(MAIL.envelope, sender="", origin=Origin.REPORT))


def test_a_message_and_its_recipients_are_counted_apart() -> None:
    meters = Meters()
    meters.accepted(0, [MAIL, replace(MAIL, qid=2)])
    meters.accepted(0, [REPORT])
    assert (meters.accepted_messages, meters.accepted_recipients, meters.reports) == (2, 3, 1)
    assert meters.accepted_octets == 140


def test_verdicts_are_counted_with_their_times() -> None:
    meters = Meters()
    slow = replace(ATTEMPT, attempt_ms=300)
    meters.attempted(0, [MAIL, MAIL], "example.org")
    meters.delivered(1700, MAIL, replace(delivered(), attempt=slow))
    meters.deferred(0, MAIL, deferred(5))
    maybe = Deferred(reply=deferred(5).reply, attempt=slow, due=5, possibly_delivered=True)
    meters.deferred(0, MAIL, maybe)
    meters.bounced(0, MAIL, bounced())
    meters.expired(0, MAIL, expired())
    assert meters.attempts == 2
    assert (meters.delivered_recipients, meters.deferred_recipients) == (1, 2)
    assert (meters.bounced_recipients, meters.expired_recipients) == (1, 1)
    assert meters.possibly_delivered == 1
    assert (sum(meters.attempt_durations.counts), meters.attempt_durations.total) == (5, 600)
    assert (sum(meters.queued.counts), meters.queued.total) == (1, 700)


def test_reports_that_fail_are_counted() -> None:
    meters = Meters()
    meters.bounced(0, REPORT, bounced())
    meters.expired(0, REPORT, expired())
    meters.bounced(0, MAIL, bounced())
    assert (meters.failed_reports, meters.silent_ends) == (2, 2)
    meters.bounced(0, replace(REPORT, envelope=replace(REPORT.envelope, origin=Origin.SMTP)), bounced())
    assert (meters.failed_reports, meters.silent_ends) == (2, 3)


def test_the_rest_is_counted() -> None:
    meters = Meters()
    meters.reported(0, MAIL, 4)
    meters.discarded(0, MAIL, "notify")
    meters.outcome_unknown(0, MAIL)
    meters.refused(0, Refusal(reason="relay", reply=Reply(code=550)))
    meters.refused(0, Refusal(reason="relay", reply=Reply(code=550)))
    meters.connected(0, ATTEMPT)
    meters.connect_failed(0, ATTEMPT, "refused")
    assert (meters.reported_recipients, meters.unknown_outcomes) == (1, 1)
    assert (meters.connections, meters.failed_connections) == (1, 1)
    assert meters.discarded_bounces.counts == {"notify": 1}
    assert meters.refusals.counts == {"relay": 2}


def test_a_spread_counts_at_or_below_each_bound() -> None:
    spread = Spread((10, 100))
    for ms in (0, 10, 11, 100, 101, -5):
        spread.add(ms)
    assert spread.counts == [3, 2, 1]
    seconds = spread.in_seconds()
    assert (seconds.bounds, seconds.counts, seconds.total) == ([0.01, 0.1], [3, 2, 1], 0.222)


def test_reasons_are_bounded() -> None:
    reasons = Reasons()
    for n in range(MAX_REASONS + 10):
        reasons.add(f"word{n}")
    assert len(reasons.counts) == MAX_REASONS + 1
    assert reasons.counts[OTHER] == 10
