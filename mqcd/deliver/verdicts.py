"""From what happened to a recipient to the verdict that the store records. Pure."""

from __future__ import annotations

from mqcd.core.model import Attempt, Bounced, Deferred, Delivered, Expired, Phase, Recipient, Verdict
from mqcd.core.reply import Reply
from mqcd.core.schedule import RetrySchedule
from mqcd.deliver.exchange import Outcome, Result

INTERNAL = Reply(code=451, status="4.3.0", text="internal error; the log of this server says more")


def verdict_on(
    recipient: Recipient,
    outcome: Outcome,
    attempt: Attempt,
    schedule: RetrySchedule,
    now: int,
    *,
    may_expire: bool,
) -> Verdict:
    """The verdict at wall time `now`; a recipient that may not wait any longer expires, if it may at all."""
    if outcome.result is Result.DELIVERED:
        return Delivered(reply=outcome.reply, attempt=attempt)
    if outcome.result is Result.BOUNCED:
        return Bounced(reply=outcome.reply, attempt=attempt)
    due = schedule.next_due(recipient, now, may_expire=may_expire)
    if due is None:
        return Expired(reply=outcome.reply, attempt=attempt)
    return Deferred(
        reply=outcome.reply, attempt=attempt, due=due, possibly_delivered=outcome.possibly_delivered
    )


def failure(reply: Reply, phase: Phase) -> Outcome:
    """The outcome of an attempt that never came to a transaction."""
    result = Result.BOUNCED if reply.permanent else Result.DEFERRED
    return Outcome(result=result, reply=reply, phase=phase)
