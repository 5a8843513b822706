"""The verdict that follows from an attempt's outcome. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from mqcd.core.model import Attempt, Bounced, Deferred, Delivered, Expired, Phase, Recipient, Verdict
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.smtp.exchange import Outcome, Result

UNREACHED = frozenset({Phase.CONNECT, Phase.GREETING, Phase.EHLO})
"""Where an attempt ends whose destination takes no connections."""
BROKEN = Reply(code=451, status="4.4.2", text="connections break")
INTERNAL = Reply(code=451, status="4.3.0", text="internal error, see the server log")


def verdict_on(
    recipient: Recipient,
    outcome: Outcome,
    attempt: Attempt,
    schedule: RetrySchedule,
    now: int,
    *,
    may_expire: bool,
    latest: int | None = None,
) -> Verdict:
    """The verdict at wall time `now`; a recipient that has reached its age limit expires, if `may_expire`.
    Others are due at `latest` or before (None = when their schedule says)."""
    match outcome.result:
        case Result.DELIVERED:
            return Delivered(reply=outcome.reply, attempt=attempt)
        case Result.BOUNCED:
            return Bounced(reply=outcome.reply, attempt=attempt)
        case Result.DEFERRED:
            return _not_yet(recipient, outcome, attempt, schedule, now, may_expire=may_expire, latest=latest)
        case _:
            assert_never(outcome.result)


def _not_yet(
    recipient: Recipient,
    outcome: Outcome,
    attempt: Attempt,
    schedule: RetrySchedule,
    now: int,
    *,
    may_expire: bool,
    latest: int | None,
) -> Deferred | Expired:
    """The next attempt, the rest until mail is asked for again, or the end at the age limit."""
    if schedule.holding.ends(recipient):
        # It is collected: no schedule applies.
        if may_expire and now >= recipient.due:
            return Expired(reply=outcome.reply, attempt=attempt)
        return Deferred(
            reply=outcome.reply,
            attempt=attempt,
            # A retry's delay must not move the age limit ahead at each attempt.
            due=recipient.due if now < recipient.due else now + schedule.delays[0],
            possibly_delivered=outcome.possibly_delivered,
            held=True,
        )
    due = schedule.next_due(recipient, now, may_expire=may_expire)
    if due is None:
        return Expired(reply=outcome.reply, attempt=attempt)
    held = outcome.phase in UNREACHED and schedule.holding.rests(recipient)
    if held:
        due = schedule.held_until(recipient, now)
    elif latest is not None:
        due = min(due, latest)
    warns = schedule.warns(recipient, now) if may_expire else None
    return Deferred(
        reply=outcome.reply,
        attempt=attempt,
        due=due,
        possibly_delivered=outcome.possibly_delivered,
        warning=schedule.expires(recipient, now) if warns is not None and warns <= now else 0,
        held=held,
    )


def failure(reply: Reply, phase: Phase) -> Outcome:
    """The outcome of an attempt that never came to a transaction."""
    result = Result.BOUNCED if reply.permanent else Result.DEFERRED
    return Outcome(result=result, reply=reply, phase=phase)


def feedback_of(outcomes: Sequence[Outcome]) -> Feedback:
    """What a transaction's outcomes say about the server's capacity.

    421 at any point, and a temporary reply to MAIL, DATA or the final dot, are about the server's own state;
    one to RCPT is about the recipient, or about greylisting.
    """
    for outcome in outcomes:
        if outcome.result is not Result.DEFERRED:
            return Feedback.GOOD
    whole = any(outcome.phase is not Phase.RCPT or outcome.reply.code == 421 for outcome in outcomes)
    return Feedback.PUSHED_BACK if whole else Feedback.NEUTRAL
