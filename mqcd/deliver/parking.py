"""Decides on recipients that the lane table returns: parked until a time, or given a verdict. Pure.

Mail expires only by a failure, and no recipient may wait for ever without an attempt:

* The last probe of a suspended destination counts as a failed attempt for all its recipients that have
  reached their age limit. They come back after each probe, at the latest after the first retry delay; claims
  do not pass over overdue recipients. It counts as one for all that are held while it lasts, too.
* Delay warnings go out for these recipients too, with the same failure; they wait on as before.
* A recipient without a turn because of a rate, or of a lane without progress, has `grace` longer, counted
  from the start of the server at the earliest, so that a long stop leaves time for an attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqcd.core.model import Recipient
from mqcd.core.queueing.schedule import LAST_CHANCE_MS, RetrySchedule
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.lane import Give, Lane, Why

NO_TURN = Reply(code=451, status="4.4.7", text="expired before any attempt")
_DEAD = Reply(code=451, status="4.4.1", text="destination unreachable")


@dataclass(frozen=True, slots=True)
class Judged:
    """Recipients that get the verdict of a failed attempt."""

    lane: Lane
    recipients: list[Recipient]
    reply: Reply


@dataclass(frozen=True, slots=True)
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
        reply = (give.lane.suspension.reply or _DEAD) if give.why is Why.DEAD else NO_TURN
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
                warned.setdefault(key, Judged(give.lane, [], reply)).recipients.append(recipient)
            else:
                parked.setdefault(end, []).append(recipient)
        if over:
            judged.append(Judged(give.lane, over, reply))
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
