"""What becomes of a lane's mail and connections: decisions on its record, all connections and the time. Pure.

They change nothing: `LaneTable`, `Entering` and their parts apply them. What holds mail back is decided here
alone, and so is what follows from the outcome of an attempt: an `After`, which `LaneTable._apply` makes the
lane's record.

| asked when | by | decides |
|---|---|---|
| new mail comes while a connection has nothing to do | `is_free` | whether it may go without asking further |
| a recipient comes | `holds_back` | whether it waits in the lane, or why outside |
| the lane has its turn | `at_turn` | an idle or a new connection, or where the lane waits |
| a job is next | `allowed` | how many recipients its rates allow, or which of them until when none |
| a connection has nothing to do | `must_close` | whether it has to go |
| a transaction ran to its end | `passed` | the lane's window and share, and that it is open |
| no host can be reached | `failed` | its window; or its suspension, where no connection works |
| a connection broke | `broke` | its window; or its suspension, after `BREAKS` in a row or while suspended |
| a connection is closed | `is_forgettable` | whether the lane may leave the table |
| a claim begins | `next_rest` | whether claims still pass over what a lane would have to give back |
| the active set is full | `reliefs` | which lanes give back how much |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Condition, Event, Lane, Why
from mqcd.deliver.lanes.outside import NOT_SUSPENDED, Share, Suspension
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.window import Feedback, Window

STUCK_MS = 500
"""A lane without an attempt for so long makes no progress."""
BREAKS = 3
"""Connections that break in a row, none passing a transaction, after which a destination is suspended."""
SLOW_MS = 5000
"""A lane whose head of line waited longer than this is slow."""


class Turn(Enum):
    """What a lane does at its turn."""

    LEAVE = "leave"
    """It has no job, or as many connections as it may have: it leaves the line."""
    REUSE = "reuse"
    """It starts a job over an idle connection."""
    OPEN = "open"
    """It starts a job over a new connection."""
    HOLD = "hold"
    """It is held until those in doubt have fewer connections, see `slots`."""
    STAY = "stay"
    """All connections are in use: it stays in line."""


# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_LEAVE, _REUSE, _OPEN, _HOLD, _STAY = Turn
_DEAD, _RATE, _SHARE = Why.DEAD, Why.RATE, Why.SHARE
_KNOWN_OPEN = Condition.OPEN


@value(kw_only=False)
class Short:
    """A rate without tokens."""

    limit: Limit
    until: int


@value
class After:
    """The record of a lane after an attempt has ended, and the event for its condition."""

    event: Event | None
    """None = its condition stays."""
    window: Window
    breaks: int
    suspension: Suspension
    share: Share


def is_free(lane: Lane, senders: bool) -> bool:
    """Whether nothing can hold back the lane's mail, from any sender: `holds_back` and `allowed` need not be
    asked. Whatever they ask must be named here: a test notices a new `Why`, but not another cause of an old
    one. `senders`: whether some senders have rates."""
    return not (senders or lane.suspended or lane.share.most or lane.queue.limits)


def holds_back(lane: Lane, job: Job, now: int, most: int) -> Why | None:
    """Why the recipient of a new job has to wait outside; None = it waits in its lane. `most`: how many
    recipients may wait inside for one rate, see `Limit.lets_in`."""
    if lane.suspended:
        # One waits inside, as the probe.
        return _DEAD if lane.queue.waiting or lane.connections else None
    if job.few:
        return None
    if lane.share.most and lane.queue.waiting >= lane.share.most:
        return _SHARE
    for limit in lane.queue.limits_of(job):
        if not limit.lets_in(now, most, job.been_outside):
            return _RATE
    return None


def at_turn(lane: Lane, slots: Slots, now: int, queuecache: int, single: bool) -> Turn:
    """What a lane does at its turn. `single`: there is no other."""
    if not lane.queue.waiting:
        return _LEAVE
    if lane.idle:
        return _REUSE
    if lane.connections >= lane.most_connections(queuecache, now):
        return _LEAVE
    if slots.full:
        return _STAY
    return _HOLD if not single and slots.refuses(lane, now) else _OPEN


def allowed(job: Job, limits: Sequence[Limit], now: int) -> int | Short:
    """How many recipients of a job may go now by the rates that count it; or the rate that has no tokens."""
    size = len(job.recipients)
    for limit in limits:
        size = min(size, limit.burst)
    for limit in limits:
        if wait := limit.wait(size, now):
            return Short(limit, now + wait)
    return size


def must_close(lane: Lane, slots: Slots) -> bool:
    """Whether a connection that has ended its job has to go: its lane is suspended, or others wait for it."""
    return lane.suspended or slots.others_wait(lane)


def passed(lane: Lane, feedback: Feedback, quick: bool, queuecache: int, now: int) -> After | None:
    """After a transaction that ran to its end; `quick`: at the pace of the server's best. None = nothing
    changes, as with most."""
    window = lane.window.after(feedback, quick, lane.connections, lane.top(queuecache), now)
    event, share = None, lane.share
    if lane.condition is not _KNOWN_OPEN:
        event, share = Event.PASS, share.lifted()
    elif window is lane.window and not lane.breaks:
        return None
    return After(event=event, window=window, breaks=0, suspension=NOT_SUSPENDED, share=share)


def failed(lane: Lane, reply: Reply, now: int) -> After:
    """After no host could be reached: connections that work show how many the server takes; without any it is
    suspended."""
    if not lane.working:
        return _suspended(lane, reply, now)
    window = lane.window.refused(lane.working, now)
    return After(event=None, window=window, breaks=lane.breaks, suspension=lane.suspension, share=lane.share)


def broke(lane: Lane, reply: Reply, now: int) -> After:
    """After a connection broke in mid-transaction."""
    breaks = lane.breaks + 1
    if lane.suspended or breaks >= BREAKS:
        return _suspended(lane, reply, now)
    window = lane.window.halved()
    return After(event=None, window=window, breaks=breaks, suspension=lane.suspension, share=lane.share)


def _suspended(lane: Lane, reply: Reply, now: int) -> After:
    suspension = lane.suspension.failed(reply, lane.hop.policy, now)
    window = lane.window.closed()
    return After(event=Event.FAIL, window=window, breaks=0, suspension=suspension, share=lane.share)


def is_forgettable(lane: Lane, now: int) -> bool:
    """Whether the table may forget a lane: nothing is there, and a new one would behave the same."""
    queue = lane.queue
    busy = queue.waiting or queue.aside or lane.connections or lane.suspended
    return not busy and lane.owes_nothing(now)


def next_rest(lane: Lane, now: int) -> Share | None:
    """The share of a lane whose mail claims pass over; None = they no longer do. The next rest begins as soon
    as one has ended with the share still held: no mail is claimed to see that."""
    share = lane.share
    if lane.suspended:
        return None
    if share.until <= now and not (share.most and lane.queue.waiting >= share.most):
        return None
    return share.resting(now, lane.moved)


def reliefs(lanes: Iterable[Lane], queuecache: int, now: int) -> list[tuple[Lane, Share]]:
    """The lanes that hold more than their share of the full active set and make no progress, and the share
    that each keeps, so that none can hold all of it."""
    waiting = [lane for lane in lanes if lane.queue.waiting]
    most = max(queuecache // (2 * max(len(waiting), 1)), 1)
    found: list[tuple[Lane, Share]] = []
    for lane in waiting:
        held = lane.queue.waiting
        waited = now - lane.queue.jobs.longest_since
        if held <= most or (waited < SLOW_MS and now - lane.moved < STUCK_MS):
            continue
        # What stays should last until the rest comes back, at the speed seen so far.
        rest = max(waited * most // held, STUCK_MS)
        found.append((lane, replace(lane.share, most=most).rest_begun(rest, now, lane.moved)))
    return found
