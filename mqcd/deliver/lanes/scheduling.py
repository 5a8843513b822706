"""Decides which job starts next, and over how many connections: a table of lanes, one per hop. Pure.

| what | is shared by | each gets | because | see |
|---|---|---|---|---|
| turns | zones; lanes of the default zone | one job a round | a long lane delays no other | `turns` |
| a lane's turns | priorities | the highest 7 of 8, lower ones the 8th | urgent mail starves none | `jobs` |
| | tenants of one priority | every other one, of two | a bulk sender delays no other | `tenants` |
| 100 connections | answering ones; others | 100; 50, with new ones 75 | tarpits delay no other | `slots` |
| | one lane | its window, 1 to 20 | a server gets what it takes | `window` |
| 2500 recipients | a lane; a new one | all; 625 | one that stands still leaves room | `entering` |
| | a lane that stands still | 1250 / lanes with mail | the same, once they are full | `reliefs` |
| 312 more | tenants with little mail here | each 8 times what is free | the next finds some | `tenants` |
| tokens of a rate | what it counts | in order of arrival | other mail goes on | `throttling` |

with `maxconnections` 100, `maxserverconnections` 20, `queuecache` 2500. Recipients of one message travel
together, at most `maxrecips` in one transaction. Mail that would wait long waits outside the active set
(`outside`), and claims pass over it (`passing`). How it comes in, and is counted, is in `entering`.

Decisions are made in `decisions` and applied here; what other parts have to do is returned (`Start`, `Give`).
Pool and workers do it and report what has ended; what follows from an outcome is an `After`, applied by
`_apply`, and the counts of connections change with it:

| what ended | the lane's window | suspended | besides |
|---|---|---|---|
| a handshake (`opened`) | | | the connection counts as working |
| a transaction (`went_through`) | by its time and feedback | no longer | the first one lifts its share |
| all hosts refuse (`failed`), connections work | shrinks | | |
| the same, no connection works | closes | yes | one recipient stays as the probe, others go back |
| a connection in a transaction (`broke`) | halves | | |
| the same, `BREAKS` in a row or while suspended | closes | yes | one stays as the probe likewise |
| a connection (`closed`) | | | a lane without mail may be forgotten |

Of a connection that failed or broke the caller reports that first, and `closed` then. How long a lane is
suspended is in `outside`, the table of its conditions in `lane`.

Times are ms; `now` is monotonic here, parking times are handed out relative (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from mqcd.core.model import Recipient
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes import decisions
from mqcd.deliver.lanes.decisions import (
    STUCK_MS,
    After,
    Turn,
    at_turn,
    is_forgettable,
    must_close,
    next_rest,
    reliefs,
)
from mqcd.deliver.lanes.entering import Entering
from mqcd.deliver.lanes.jobs import Job, recipients_of
from mqcd.deliver.lanes.lane import TRIAL_MS, Bounds, Event, Give, Lane, LaneState, Start, Why
from mqcd.deliver.lanes.passing import Passing
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.throttling import Alarms, Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.lanes.waits import Wait, wait_of
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.routing.policy import Hop

MANY_LANES = 1000
"""With more of them, of whatever state, an empty one may be forgotten as its last connection closes."""

# As globals, see `decisions`.
_LEAVE, _HOLD, _STAY = Turn.LEAVE, Turn.HOLD, Turn.STAY


class LaneTable:
    """All lanes, which work starts, and what follows when it ends; mail comes by `entering`."""

    def __init__(self, bounds: Bounds) -> None:
        self._lanes: dict[str, Lane] = {}
        self._turns = Turns()
        self._alarms = Alarms()
        self._throttle = Throttle(self._turns, self._alarms)
        self.passing = Passing()
        self.slots = Slots(self._turns, bounds.maxconnections)
        parts = self._turns, self._throttle, self.passing, self.slots
        self.entering = Entering(bounds, self._lanes, *parts)
        self.rebind(bounds, 0)

    def rebind(self, bounds: Bounds, now: int) -> None:
        """Apply other bounds from the next decision on; connections above them end by themselves. What rates
        have used up stays used up. Domains may have other lanes from now on."""
        self.entering.bounds = bounds
        self.passing.clear()
        self._throttle.rebind(bounds, self._lanes.values(), now)
        self.slots.rebind(bounds.maxconnections)  # Held lanes come into line with jobs that stood aside.

    # ------------------------------------------------------------ looking

    def lanes(self) -> Iterator[Lane]:
        """Every lane there is."""
        return iter(self._lanes.values())

    def states(self, now: int) -> list[LaneState]:
        """A snapshot for operators."""
        return [lane.view(self.entering.bounds.queuecache, now) for lane in self._lanes.values()]

    def state(self, name: str, now: int) -> LaneState | None:
        """The state of one lane; None if there is none of this name."""
        lane = self._lanes.get(name)
        return None if lane is None else lane.view(self.entering.bounds.queuecache, now)

    def wait(self, recipient: Recipient, now: int) -> Wait:
        """What stands before a recipient of the queue."""
        return wait_of(self._lanes.values(), self._throttle, recipient, now)

    def next_wake(self, now: int) -> int | None:
        """In how many ms `dispatch` may start something without another event; None = it will not."""
        alarm = self._alarms.next()
        times = [] if alarm is None else [alarm - now]
        if (self.entering.active and not self.entering.room()) or self.slots.overdrawn:
            times.append(STUCK_MS)
        return max(min(times), 0) if times else None

    def renew_rests(self, now: int) -> None:
        """A claim begins: lanes that still hold their share rest on, others no longer."""
        for lane in self.passing.resting:
            share = next_rest(lane, now)
            if share is None:
                self.passing.stops_resting(lane)
            else:
                lane.share = share

    # ------------------------------------------------------------ work starts

    def dispatch(self, now: int) -> list[Start]:
        """What to start now, zones and lanes in turn. The table counts it as started."""
        self._throttle.wake(now)
        started: list[Start] = []
        blocked: list[Lane] = []
        slots, most, single = self.slots, self.entering.bounds.queuecache, len(self._lanes) == 1
        slots.release_held()
        # Where all connections are in use, only a lane with an idle one can start something.
        while not slots.full or slots.idle:
            lane = self._turns.pop()
            if lane is None:
                break
            turn = at_turn(lane, slots, now, most, single)
            if turn is _STAY:
                blocked.append(lane)
            elif turn is _HOLD:
                slots.hold(lane, now)
            # Where `take` gives no job the lane is not lost: an alarm will push it, or `Throttle._sleep` has.
            elif turn is not _LEAVE and (job := self._throttle.take(lane, now)) is not None:
                started.append(Start(lane=lane, job=job, reuse=slots.start(lane, now)))
                self._turns.push(lane)
        for lane in blocked:
            self._turns.push(lane)
        slots.crowded = slots.full and bool(self._turns)
        return started

    def next_job(self, lane: Lane, now: int) -> Job | None:
        """More work for a connection of `lane` that has become free; None: it is idle, or must go.

        Where a zone's tokens go by age, `dispatch` decides.
        """
        if not lane.queue.waiting or must_close(lane, self.slots):
            return None
        if self._throttle.by_age(lane):
            self._turns.push(lane)
            return None
        return self._throttle.take(lane, now)

    def keep(self, lane: Lane) -> bool:
        """Whether a connection without work may stay open; it counts as idle from now on if so."""
        if must_close(lane, self.slots):
            return False
        self.slots.went_idle(lane)
        if lane.queue.waiting:
            self._turns.push(lane)
        return True

    def review(self, now: int) -> None:
        """Check which lanes no longer answer, where that matters."""
        for lane in self._lanes.values() if self.slots.crowded else ():
            if lane.connections:
                self.slots.judge(lane, now)

    # ------------------------------------------------------------ work ends

    def opened(self, lane: Lane) -> None:
        """A connection has completed its handshake."""
        lane.working += 1

    def went_through(self, lane: Lane, now: int, took: int = 0, feedback: Feedback = Feedback.GOOD) -> None:
        """A transaction ran to its end, in `took` ms: the destination is open."""
        lane.moved = now
        quick = lane.pace.measure(took, now)
        after = decisions.passed(lane, feedback, quick, self.entering.bounds.queuecache, now)
        if after is not None:
            self._apply(lane, after, now)
        self.slots.judge(lane, now)

    def failed(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """No host of the destination could be reached. The caller closes the connection besides."""
        return self._apply(lane, decisions.failed(lane, reply, now), now)

    def broke(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """A connection broke in mid-transaction. The caller closes it besides."""
        return self._apply(lane, decisions.broke(lane, reply, now), now)

    def _apply(self, lane: Lane, after: After, now: int) -> Give | None:
        """Make what follows from an outcome the lane's record, and see to what depends on it. Of a lane that
        is suspended one recipient stays as the probe; a Give of all others."""
        grown = after.window.size > lane.window.size
        alarm = after.suspension.until != lane.suspension.until
        lane.window, lane.breaks = after.window, after.breaks
        lane.suspension, lane.share = after.suspension, after.share
        if after.event is not None:
            lane.on(after.event)
            if lane.suspended:
                self.passing.add(lane)
            else:
                self.passing.revived(lane)
        if grown:
            self._turns.push(lane)
        if after.event is not Event.FAIL:
            return None
        if alarm:
            self._alarms.probe(lane)
        if not (given := lane.queue.keep_one()):
            return None
        return Give(recipients=given, after=lane.until_probed(now), why=Why.DEAD, lane=lane)

    def closed(self, lane: Lane, now: int, *, working: bool) -> None:
        """A connection is gone; `working` says whether it was past its handshake. Of one that was idle the
        worker has reported that to `slots.left` before (`Worker.expire`)."""
        self.slots.closed(lane)
        lane.working -= working
        if not lane.connections:
            lane.on(Event.UNUSED)
        self._turns.push(lane)
        if len(self._lanes) > MANY_LANES and is_forgettable(lane, now):
            self._forget(lane)

    def probe(self, domains: Collection[str] | None, now: int) -> None:
        """Let the next probe of suspended lanes with mail for `domains` (None = of all) begin at once; if it
        fails, the next ones come as after the first failure."""
        for lane in self.passing.dead(domains):
            lane.suspension = lane.suspension.hurried(now)
            self._turns.push(lane)

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
            if lane.owes_nothing(now):
                self._forget(lane)

    # ------------------------------------------------------------ the active set is full

    def relieve(self, now: int) -> list[Give]:
        """Recipients to return, so that a lane without progress cannot hold the whole active set."""
        given: list[Give] = []
        if self.entering.room():
            return given
        for lane, share in reliefs(self.lanes(), self.entering.bounds.queuecache, now):
            lane.share = share
            self.passing.add(lane)
            cut = lane.queue.cut(share.most)
            given.append(Give(recipients=cut, after=share.rest, why=Why.SHARE, lane=lane))
        return given

    def cull(self, over: Callable[[Lane, Recipient], bool]) -> list[Give]:
        """Recipients to return after too long a wait inside; not the probe of a suspended lane."""
        return [
            Give(recipients=recipients_of(gone), after=0, why=Why.SHARE, lane=lane)
            for lane in self._lanes.values()
            if (gone := lane.queue.cull(partial(over, lane), spare_first=lane.suspended))
        ]

    def withdraw(self, misplaced: Callable[[Hop, Recipient], bool]) -> list[Recipient]:
        """Remove and return the waiting recipients that are `misplaced` in their lanes: to be placed anew."""
        gone = self._throttle.withdraw(self._lanes.values(), misplaced)
        for job in gone:
            self.entering.remember(job)
        return recipients_of(gone)

    def empty(self) -> list[Recipient]:
        """Remove and return everything that waits, for an orderly stop."""
        return recipients_of(self._throttle.withdraw(self._lanes.values(), lambda _hop, _recipient: True))

    # ------------------------------------------------------------ inside

    def _forget(self, lane: Lane) -> None:
        lane.on(Event.FORGET)
        del self._lanes[lane.name]
        self.passing.forget(lane)
