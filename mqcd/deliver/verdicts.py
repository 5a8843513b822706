"""What becomes of a recipient: by the outcome of an attempt, or when the lane table gives it back. Pure.

What is given back is parked until a time, or has the verdict of a failed attempt (`part`). Mail expires only
by a failure, and no recipient may wait for ever without an attempt:

* The last probe of a suspended destination counts as a failed attempt for all its recipients that have
  reached their age limit. They come back after each probe, at the latest after the first retry delay; claims
  do not pass over overdue recipients. It counts as one for all that are held while it lasts, too.
* Delay warnings go out for these recipients too, with the same failure; they wait on as before
  (`Settling._warn`).
* A recipient without a turn because of a rate, or of a lane without progress, has `grace` longer, counted
  from the start of the server at the earliest, so that a long stop leaves time for an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from mqcd.core.model import Area, Attempt, Bounced, Deferred, Delivered, Expired, Phase, Recipient, Verdict
from mqcd.core.queueing.schedule import LAST_CHANCE_MS, RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.lanes.lane import Give, Lane, Why
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.smtp.exchange import Outcome, Result

UNREACHED = frozenset({Phase.CONNECT, Phase.GREETING, Phase.EHLO})
"""Where an attempt ends whose destination takes no connections."""
CONNECTIONS_BREAK = Reply(code=451, status="4.4.2", text="connections break")
INTERNAL = Reply(code=451, status="4.3.0", text="internal error, see the server log", own=True)
_NO_TURN = Reply(code=451, status="4.4.7", text="expired before any attempt")
_NOT_YET = Reply(code=451, status="4.4.5", text="waits for its turn at the destination")
_DEAD = Reply(code=451, status="4.4.1", text="destination unreachable")


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


def after_fault(
    recipient: Recipient,
    outcome: Outcome,
    attempt: Attempt,
    schedule: RetrySchedule,
    now: int,
    *,
    may_expire: bool,
) -> Verdict:
    """The verdict after an attempt where an internal error leaves none, of bare figures alone: no part that
    may fail again has a say in it. It backs off and expires, as what was tried must."""
    if outcome.result is Result.DELIVERED:
        return Delivered(reply=outcome.reply, attempt=attempt)
    envelope, delays = recipient.envelope, schedule.delays
    # What rests for its domain does so until its due time, the end of its life (see `queueing.holding`).
    rests = recipient.area is Area.HELD and recipient.due > 0
    limit = recipient.due if rests else max(envelope.received, envelope.release) + schedule.maxtime
    if may_expire and now >= limit:
        return Expired(reply=INTERNAL, attempt=attempt)
    retry = now + delays[min(recipient.attempts, len(delays) - 1)]
    return Deferred(
        reply=INTERNAL,
        attempt=attempt,
        due=limit if rests and now < limit else retry,
        possibly_delivered=outcome.possibly_delivered,
        held=rests,
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
        if not outcome.result.puts_off:
            return Feedback.GOOD
    whole = any(outcome.phase is not Phase.RCPT or outcome.reply.code == 421 for outcome in outcomes)
    return Feedback.PUSHED_BACK if whole else Feedback.NEUTRAL


@value(kw_only=False)
class Judged:
    """Recipients that get the verdict of a failed attempt."""

    lane: Lane
    recipients: list[Recipient]
    reply: Reply


@value(kw_only=False)
class Parted:
    """The decision on returned recipients."""

    judged: list[Judged]
    warned: list[tuple[int, Judged]]
    """By the wall time until which they wait: recipients whose sender is due a delay warning."""
    parked: Mapping[int, list[Recipient]]
    """By the time until when, wall ms."""


def part(gives: Iterable[Give], now: int, uptime: int) -> Parted:
    """Which recipients wait until when, and which are over their limit; `now` is wall time, `uptime` of the
    server; both ms."""
    judged: list[Judged] = []
    warned: dict[tuple[int, int, str], Judged] = {}
    parked: dict[int, list[Recipient]] = {}
    for give in gives:
        schedule = give.lane.hop.policy.schedule
        dead = (give.lane.suspension.reply or _DEAD) if give.why is Why.DEAD else None
        until = now + give.after
        over = []
        for recipient in give.recipients:
            rests = give.why is Why.DEAD and schedule.holding.rests(recipient)
            if rests or is_over(recipient, schedule, give.why, now, uptime):
                over.append(recipient)
                continue
            limit = schedule.expires(recipient, now)
            end = min(until, max(limit, now + LAST_CHANCE_MS)) if limit > now else until
            if is_late(recipient, schedule, now):
                key = end, recipient.spid, give.lane.name
                warned.setdefault(key, Judged(give.lane, [], dead or _NOT_YET)).recipients.append(recipient)
            else:
                parked.setdefault(end, []).append(recipient)
        if over:
            judged.append(Judged(give.lane, over, dead or _NO_TURN))
    return Parted(judged, [(end, each) for (end, _, _), each in warned.items()], parked)


def is_over(recipient: Recipient, schedule: RetrySchedule, why: Why, now: int, uptime: int) -> bool:
    """Whether a recipient that is not tried has waited long enough."""
    limit = schedule.expires(recipient, now)
    if why is Why.DEAD:
        return now >= limit
    return uptime >= grace(schedule) and now >= limit + grace(schedule)


def is_late(recipient: Recipient, schedule: RetrySchedule, now: int) -> bool:
    """Whether its sender is due a delay warning."""
    warns = schedule.warns(recipient, now)
    return warns is not None and warns <= now


def grace(schedule: RetrySchedule) -> int:
    """Time beyond its age limit that mail may wait for its turn, ms."""
    return schedule.longest
