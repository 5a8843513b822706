"""Holds back lanes and jobs without tokens until their next token. Pure.

The table asks `take` for a lane's next job, and calls `wake` when time has passed. A job is charged to all
limits that count it, or to none.

| the limit without tokens | what sleeps, until the next token | what goes on |
|---|---|---|
| of a sender | the limit; its jobs stand aside, out of their lanes | all mail of other senders |
| of a lane | the lane | all other lanes |
| of a zone | the zone; its lanes keep their places in line | all other zones |

Example: lane `a` has a rate of 1/s, sender `s` one of 6/m, and three jobs of one recipient each wait in `a`,
the first two of them from `s`. At 0 s the first goes, the second stands aside for want of a token of `s`, and
the lane sleeps for want of one of its own. At 1 s the third goes. At 10 s `s` has a token: its job returns to
the head of the lane and goes. A job of more recipients than a limit's `burst` is split.

Nothing is polled: what sleeps has an alarm at the time of its next token (`Alarms`). Lanes, zones and limits
have `asleep`, the time until which they sleep; 0 = awake, a lane also when the time is past. Only `Alarms`
changes it. A suspended lane does not sleep: it has an alarm at the time of its next probe, from `probe` on
until that has come.

| change | `asleep` | its alarm |
|---|---|---|
| `sleep` until a time | that time | is set |
| `sleep` again, until another time | the other time | another is set; the first ends no sleep |
| `go_off` at its time | 0 | has gone off |
| `wake_all` | 0 | is forgotten |

Times are monotonic ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import assert_never

from mqcd.core.model import Recipient
from mqcd.core.ports import UsedRates
from mqcd.deliver.lanes.decisions import Short, allowed
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Bounds, Lane
from mqcd.deliver.lanes.rates import Limit, Limits, Scope, limit_of
from mqcd.deliver.lanes.turns import Turns, Zone
from mqcd.deliver.routing.policy import Hop

Sleeper = Lane | Zone | Limit


class Alarms:
    """The alarms of one table of lanes."""

    def __init__(self) -> None:
        self._alarms: list[tuple[int, int, Sleeper]] = []
        self._count = 0

    def sleep(self, what: Sleeper, until: int) -> None:
        """It sleeps until then."""
        what.asleep = until
        self._set(until, what)

    def probe(self, lane: Lane) -> None:
        """Look at a suspended lane when its next probe may begin, whether mail waits by then or not: what
        comes later may begin it at once."""
        self._set(lane.suspension.until, lane)

    def wake_all(self) -> None:
        """Nothing sleeps any more; alarms of probes stay."""
        for _, _, what in self._alarms:
            what.asleep = 0
        self._alarms = [each for each in self._alarms if _meant(each[0], each[2])]
        heapify(self._alarms)

    def next(self) -> int | None:
        """When an alarm goes off; those without a purpose are dropped."""
        alarms = self._alarms
        while alarms and not _meant(alarms[0][0], alarms[0][2]):
            heappop(alarms)
        return alarms[0][0] if alarms else None

    def go_off(self, now: int) -> Iterator[Sleeper]:
        """What has to be looked at, one after the other; it is awake then."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= now:
            at, _, what = heappop(alarms)
            if what.asleep == at:
                what.asleep = 0
                yield what
            elif isinstance(what, Lane):
                yield what

    def _set(self, at: int, what: Sleeper) -> None:
        self._count += 1
        heappush(self._alarms, (at, self._count, what))


def _meant(at: int, what: Sleeper) -> bool:
    """Whether an alarm still has a purpose. A lane that has been emptied in its sleep needs it: it may get
    mail before that ends."""
    return what.asleep == at or (isinstance(what, Lane) and what.suspended and what.suspension.until == at)


@dataclass(slots=True, eq=False, repr=False)
class Throttle:
    """Rates of one table of lanes."""

    _turns: Turns
    _alarms: Alarms
    _rates: Limits = field(default_factory=Limits)
    _used: UsedRates | None = None
    _aside: dict[Limit, deque[tuple[Lane, Job]]] = field(default_factory=dict)
    """By sender's limit: jobs that wait for its tokens, in order of arrival."""
    senders: bool = False
    """Whether some senders have limits."""

    def rebind(self, bounds: Bounds, lanes: Iterable[Lane], now: int) -> None:
        """Apply other rates. Used tokens stay used; all lanes and jobs that wait are looked at again."""
        self._used = bounds.used
        self._rates.rebind(bounds.zone_rates, bounds.sender_rates, now, bounds.used)
        self.senders = bool(bounds.sender_rates)
        self.release()
        self._alarms.wake_all()
        for lane in lanes:
            self.limit_lane(lane, now)
            lane.queue.bind_senders(self.of_sender)
            self._turns.push(lane)
        self._turns.line_up_all()

    def release(self) -> None:
        """Return all jobs that stand aside to their lanes."""
        for jobs in self._aside.values():
            for lane, job in reversed(jobs):
                lane.queue.come_back(job)
        self._aside.clear()

    def withdraw(self, lanes: Iterable[Lane], misplaced: Callable[[Hop, Recipient], bool]) -> list[Job]:
        """Take the waiting recipients that are `misplaced` out of their lanes, those aside among them."""
        self.release()
        gone: list[Job] = []
        for lane in lanes:
            gone += lane.queue.cull(partial(misplaced, lane.hop), spare_first=False)
            self._turns.push(lane)
        return gone

    def wake(self, now: int) -> None:
        """Return lanes, zones and jobs whose time has come to their lines."""
        for what in self._alarms.go_off(now):
            if isinstance(what, Zone):
                self._turns.line_up(what)
            elif isinstance(what, Limit):
                self._return_aside(what, now)
            else:
                self._turns.push(what)

    def limit_lane(self, lane: Lane, now: int) -> None:
        """Set a lane's limit from its present policy."""
        policy = lane.hop.policy
        if policy.rate is None:
            lane.limit = None
        elif lane.limit is None:
            lane.limit = limit_of(Scope.LANE, lane.name, policy.rate, self._used)
        elif lane.limit.rate != policy.rate:
            lane.limit.change(policy.rate, now)
        limits = (lane.limit, self._rates.zones.get(policy.zone))
        lane.queue.bind(tuple(limit for limit in limits if limit is not None))

    def of_sender(self, recipient: Recipient) -> Limit | None:
        """The limit of a recipient's sender."""
        return self._rates.of_sender(recipient.envelope.sender) if self.senders else None

    def lines(self) -> list[list[Job]]:
        """The jobs that wait for their senders' tokens, by sender, in order."""
        return [[job for _, job in line] for line in self._aside.values()]

    def by_age(self, lane: Lane) -> bool:
        """Whether the next job of its zone has to be found for each token: tokens there go by age."""
        return lane.hop.policy.zone in self._rates.zones

    def take(self, lane: Lane, now: int) -> Job | None:
        """The next job of a lane with mail, charged to the limits that count it; None: it has to wait."""
        queue = lane.queue
        if not (self.senders or queue.limits):
            return queue.take()
        while queue.waiting and lane.asleep <= now:
            job = queue.jobs.row[0]
            if job.paid:
                return queue.take()
            limits = queue.limits_of(job)
            size = allowed(job, limits, now)
            if isinstance(size, int):
                for limit in limits:
                    limit.take(size, now)
                queue.split_first(size).paid = True
                return queue.take()
            self._sleep(lane, size)
            if size.limit.scope is not Scope.SENDER:
                return None
        return None

    def _sleep(self, lane: Lane, short: Short) -> None:
        """Have wait what a limit counts, the lane's first job at least."""
        match short.limit.scope:
            case Scope.LANE:
                self._alarms.sleep(lane, short.until)
            case Scope.ZONE:
                self._alarms.sleep(self._turns.zone(lane.hop.policy.zone), short.until)
                self._turns.push(lane)
            case Scope.SENDER:
                self._set_aside(lane, short.limit, short.until)
            case _:
                assert_never(short.limit.scope)

    def _set_aside(self, lane: Lane, limit: Limit, until: int) -> None:
        job = lane.queue.step_aside()
        line = self._aside.setdefault(limit, deque())
        # One that came back, and whose tokens another lane's job took meanwhile, is the first again.
        if line and job.order[1] < line[0][1].order[1]:
            line.appendleft((lane, job))
        else:
            line.append((lane, job))
        if not limit.asleep:
            self._alarms.sleep(limit, until)

    def _return_aside(self, limit: Limit, now: int) -> None:
        """As many jobs as there are tokens for come back, in their order to the heads of their lanes; the
        others wait for the next token. A job larger than the burst is split then."""
        line = self._aside.get(limit, deque())
        back: list[tuple[Lane, Job]] = []
        size = 0
        while line:
            size += min(len(line[0][1].recipients), limit.burst)
            if limit.wait(size, now):
                break
            back.append(line.popleft())
        for lane, job in reversed(back):
            lane.queue.come_back(job)
            self._turns.push(lane)
        if line:
            first = min(len(line[0][1].recipients), limit.burst)
            self._alarms.sleep(limit, now + max(limit.wait(first, now), 1))
        else:
            self._aside.pop(limit, None)
