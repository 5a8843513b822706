"""What the ends of connections and transactions change in the lanes, which come and go by them. Pure.

| what ended | the lane's window | suspended | besides |
|---|---|---|---|
| a handshake (`opened`) | | | the connection counts as working |
| a transaction (`went_through`) | by its time and feedback | no longer | its share is bounded no more |
| all hosts refuse (`failed`), connections work | shrinks | | |
| the same, no connection works | closes | yes | one recipient stays as the probe, others go back |
| a connection in a transaction (`broke`) | halves | after `BREAKS` in a row | likewise |
| a connection (`closed`) | | | a lane without mail may be forgotten |

Of a connection that failed or broke the caller reports that first, and `closed` then. How long a lane is
suspended is in `outside`, the table of its conditions in `states`.
"""

from __future__ import annotations

from collections.abc import Collection

from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import TRIAL_MS, Bounds, Give, Lane, Why
from mqcd.deliver.lanes.outside import Share, Suspension
from mqcd.deliver.lanes.passing import Passing
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.states import Condition, Event
from mqcd.deliver.lanes.throttling import Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.lanes.window import Feedback

BREAKS = 3
"""Connections that break in a row, none passing a transaction, after which a destination is suspended."""
MAX_EMPTY_LANES = 1000

_OPEN, _PASS = Condition.OPEN, Event.PASS


class Outcomes:
    """The lanes, changed by what comes of the work; `LaneTable` starts it."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lanes: dict[str, Lane] = {}
        self._turns = Turns()
        self._throttle = Throttle(self._turns)
        self.passing = Passing()
        self.slots = Slots(self._turns, bounds.maxconnections)

    def opened(self, lane: Lane) -> None:
        """A connection has completed its handshake."""
        lane.working += 1

    def went_through(self, lane: Lane, now: int, took: int = 0, feedback: Feedback = Feedback.GOOD) -> None:
        """A transaction ran to its end, in `took` ms: the destination is open."""
        lane.breaks = 0
        if lane.condition is not _OPEN:
            if lane.suspended:
                lane.suspension = Suspension()
                self.passing.revived(lane)
            lane.share = Share(0, lane.share.rest, lane.share.until)
        lane.on(_PASS)
        lane.moved = now
        quick = lane.pace.measure(took, now)
        window = lane.window.after(
            feedback, quick=quick, connections=lane.connections, top=self._top(lane), now=now
        )
        grown, lane.window = window.size > lane.window.size, window
        self.slots.judge(lane, now)
        released = not lane.doubted and self.slots.release(lane)
        if grown or released:
            self._push(lane)

    def failed(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """No host of the destination could be reached. The caller closes the connection besides."""
        if lane.working:
            lane.window = lane.window.refused(lane.working, now)
            return None
        return self._suspend(lane, now, reply)

    def broke(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """A connection broke in mid-transaction. The caller closes it besides."""
        lane.breaks += 1
        lane.window = lane.window.halved()
        return self._suspend(lane, now, reply) if lane.suspended or lane.breaks >= BREAKS else None

    def closed(self, lane: Lane, now: int, *, working: bool) -> None:
        """A connection is gone; `working` says whether it was past its handshake."""
        self.slots.closed(lane)
        lane.working -= working
        if not lane.connections:
            lane.on(Event.UNUSED)
        if lane.queue.jobs:
            self._turns.push(lane)
        elif len(self._lanes) > MAX_EMPTY_LANES and self._forgettable(lane, now):
            self._forget(lane)

    def probe(self, domains: Collection[str] | None, now: int) -> None:
        """Let the next probe of suspended lanes with mail for `domains` (None = of all) begin at once.

        If it fails, the next ones come as after the first failure.
        """
        for lane in self.passing.dead(domains):
            lane.suspension = lane.suspension.hurried(now)
            self._push(lane)

    def put_back(self, lane: Lane, job: Job) -> None:
        """A job that was started and not tried goes to the head of its lane."""
        lane.queue.put_back(job)
        self._turns.push(lane)

    def took_back(self, lane: Lane, job: Job) -> None:
        """A cancelled attempt had lasted too long: the lane counts as slow until transactions show
        otherwise."""
        lane.pace.recent = max(lane.pace.recent, float(TRIAL_MS))
        self.put_back(lane, job)

    def forget(self, now: int) -> None:
        """Remove suspended lanes for which nothing waits."""
        for lane in self.passing.deserted(now):
            if lane.limit is None or lane.limit.is_full(now):
                self._forget(lane)

    # ------------------------------------------------------------ inside

    def _push(self, lane: Lane) -> None:
        if lane.queue.jobs:
            self._turns.push(lane)

    def _top(self, lane: Lane) -> int:
        """Connections that a lane may have at most."""
        return lane.hop.policy.connections or self._bounds.queuecache

    def _forgettable(self, lane: Lane, now: int) -> bool:
        busy = lane.connections or lane.suspended or lane.queue.aside
        return not busy and (lane.limit is None or lane.limit.is_full(now))

    def _forget(self, lane: Lane) -> None:
        lane.on(Event.FORGET)
        del self._lanes[lane.name]
        self.passing.forget(lane)

    def _suspend(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """Keep one recipient as the probe; a Give of all others."""
        before = lane.suspension.until
        lane.suspension = lane.suspension.failed(reply, lane.hop.policy, now)
        if lane.suspension.until != before:
            self._throttle.alarm(lane.suspension.until, lane)
        lane.on(Event.FAIL)
        self.passing.add(lane)
        lane.breaks = 0
        lane.window = lane.window.closed()
        given = lane.queue.keep_one()
        if not given:
            return None
        return Give(recipients=given, after=lane.until_probed(now), why=Why.DEAD, lane=lane)
