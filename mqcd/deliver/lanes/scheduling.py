"""Decides which job starts next, and over how many connections: a table of lanes, one per hop. Pure.

* Zones take turns, and in the default zone lanes do, so a long lane delays no other; a named zone sends
  in order of arrival (see `turns`). Within a lane recipients go in order of arrival, tenants in turn (see
  `tenants`); those of one message travel together, at most `maxrecips` in one transaction.
* How many connections a lane may have follows from its transactions (see `window`), how the connections of
  all lanes are divided from which destinations answer (see `slots`).
* Rates (see `rates`) of a lane, a zone, a sender are charged when an attempt starts. A lane or zone without
  tokens sleeps until its next one; mail of a sender without tokens steps aside, so that it delays no
  other's. Mail that would have to wait for long waits outside.
* What comes of the work, in `outcomes`, changes how many connections a lane may have, and suspends it.
* When the active set is full, lanes that hold more than their share and make no progress give back the rest,
  and get no more in until they have used up half of their share. A new lane has a quarter of the active set.

Decisions are returned (`Start`, `Give`); pool and workers perform them and report the result to the table.
Times are ms; `now` is monotonic here, parking times are handed out relative (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mqcd.core.model import Recipient
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Bounds, Give, Lane, LaneState, Start, Why
from mqcd.deliver.lanes.outcomes import Outcomes
from mqcd.deliver.lanes.outside import Share
from mqcd.deliver.lanes.passing import NOBODY, Skip
from mqcd.deliver.lanes.tenants import Places, Shares
from mqcd.deliver.lanes.waits import Wait, wait_of
from mqcd.deliver.routing.policy import Hop

STUCK_MS = 500
"""A lane without an attempt for so long makes no progress."""
SLOW_MS = 5000
"""A lane whose head of line waited longer than this is slow."""


class LaneTable(Outcomes):
    """All lanes, which work starts, and the count of what is in flight."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._count = 0
        self.active = 0
        """Recipients claimed and neither settled nor parked."""
        self.shares = Shares()
        """What each tenant has of these."""
        self.rebind(bounds, 0)

    def rebind(self, bounds: Bounds, now: int) -> None:
        """Apply other bounds from the next decision on; connections above them end by themselves. What rates
        have used up stays used up. Domains may have other lanes from now on."""
        self._bounds = bounds
        self.passing.clear()
        self.slots.rebind(bounds.maxconnections)
        self._throttle.rebind(bounds, self._lanes.values(), now)

    # ------------------------------------------------------------ looking

    def lanes(self) -> Iterator[Lane]:
        """Every lane there is."""
        return iter(self._lanes.values())

    def states(self, now: int) -> list[LaneState]:
        """A snapshot for operators."""
        return [lane.view(self._limit(lane, now), now) for lane in self._lanes.values()]

    def state(self, name: str, now: int) -> LaneState | None:
        """The state of one lane; None if there is none of this name."""
        lane = self._lanes.get(name)
        return None if lane is None else lane.view(self._limit(lane, now), now)

    def wait(self, recipient: Recipient, now: int) -> Wait:
        """What stands before a recipient of the queue."""
        return wait_of(self._lanes.values(), self._throttle, recipient, now)

    def room(self) -> int:
        """The number of recipients to claim now: none until a tenth of the active set is free."""
        room = self._bounds.queuecache - self.active
        return room if room * 10 >= self._bounds.queuecache else 0

    def places(self, skip: Skip) -> Places:
        """What a claim for `room` that passes over domains may give to which tenants besides."""
        most = self._bounds.queuecache
        return Places(self.shares, self.active, most, full=not self.room(), takes_few=skip.takes_few)

    def skip(self, now: int, wall: int = 0, barred: Mapping[str, int] = NOBODY) -> Skip:
        """Domains that claims pass over, and until when, from `wall` on; rules suspend those `barred`."""
        return self.passing.skip(now, wall, barred)

    def next_wake(self, now: int) -> int | None:
        """In how many ms `dispatch` may start something without another event; None = it will not."""
        alarm = self._throttle.next_alarm()
        times = [] if alarm is None else [alarm - now]
        if (self.active and not self.room()) or self.slots.overdrawn:
            times.append(STUCK_MS)
        return max(min(times), 0) if times else None

    # ------------------------------------------------------------ mail comes

    def enter(self, recipients: Sequence[Recipient]) -> None:
        """They have been claimed."""
        self.active += len(recipients)
        self.shares.enter(recipients)

    def leave(self, recipients: Sequence[Recipient]) -> None:
        """They have been settled or parked."""
        self.active -= len(recipients)
        self.shares.leave(recipients)

    def add(
        self, recipient: Recipient, domain: str, hop: Hop, now: int, content: bytes | None = None
    ) -> Give | None:
        """Put a claimed recipient into its lane; a Give when it has to wait outside."""
        lane = self._lane(hop, now)
        if hop.sole:
            self.passing.belongs(domain, lane)
        job = Job(hop, [recipient], now, content=content)
        if not self._is_free(lane):
            job.limit = self._throttle.of_sender(recipient)
            most = self._bounds.queuecache
            job.few = self.shares.is_few(recipient, lane.queue.few, self.active, most)
            if give := self._outside(lane, job, now):
                return give
        self._enter(lane, job, now)
        if lane.suspended:
            self._throttle.alarm(lane.suspension.until, lane)
        if lane.idle or lane.connections < self._limit(lane, now):
            self._turns.push(lane)
        return None

    def _lane(self, hop: Hop, now: int) -> Lane:
        """The lane of a hop, by the hop's policy."""
        lane = self._lanes.get(hop.key)
        if lane is None:
            lane = self._lanes[hop.key] = Lane(hop, share=Share(self._new_share))
            if zone := hop.policy.zone:
                lane.queue.turns = self._turns.zone(zone).turns
            self._throttle.limit_lane(lane, now)
        elif lane.hop is not hop:
            policy, lane.hop = lane.hop.policy, hop
            if policy is not hop.policy:
                self._throttle.limit_lane(lane, now)
        return lane

    @property
    def _new_share(self) -> int:
        """The most that a lane may hold of which no transaction has ended."""
        return max(self._bounds.queuecache // 4, 1)

    def _is_free(self, lane: Lane) -> bool:
        """Whether nothing can hold back the lane's mail. Whatever can must be asked for here: new mail that
        goes past the queue (`start_new`) is asked nothing else."""
        return not (lane.suspended or lane.share.most or self._throttle.governs(lane))

    def _outside(self, lane: Lane, job: Job, now: int) -> Give | None:
        """A Give when the lane takes no mail now: it is suspended with a probe, or holds its share; or when a
        rate allows the recipient later."""
        if lane.suspended:
            if lane.queue.jobs or lane.connections:
                wait = lane.until_probed(now)
                return Give(recipients=job.recipients, after=wait, why=Why.DEAD, lane=lane)
            return None
        if job.few:
            return None
        if lane.share.most and (wait := lane.ask_share(now)):
            self.passing.add(lane)
            return Give(recipients=job.recipients, after=wait, why=Why.SHARE, lane=lane)
        limits = lane.queue.limits if job.limit is None else (*lane.queue.limits, job.limit)
        most, been_outside = self._new_share, job.recipients[0].due > 0
        after = max((limit.book(now, most, been_outside) for limit in limits), default=0)
        return Give(recipients=job.recipients, after=after, why=Why.RATE, lane=lane) if after else None

    def _enter(self, lane: Lane, job: Job, now: int) -> None:
        """Its recipient goes to the job of its message that has room, else in this one to its turn."""
        most, [recipient] = self._bounds.maxrecips, job.recipients
        several = bool(recipient.envelope.spid & 1)
        if several and lane.queue.join(recipient, job.hop, most):
            return
        self._count += 1
        if not lane.queue.jobs:
            lane.moved = max(lane.moved, now)
        job.order = lane.queue.turns.next(recipient.envelope.tenant), self._count
        lane.queue.append(job, joinable=several and most != 1 and not lane.suspended)

    # ------------------------------------------------------------ work starts

    def dispatch(self, now: int) -> list[Start]:
        """What to start now, zones and lanes in turn. The table counts it as started."""
        self._throttle.due(now)
        started: list[Start] = []
        blocked: list[Lane] = []
        for released in self.slots.released():
            self._push(released)
        while not (full := self.slots.full) or self.slots.idle:
            lane = self._turns.pop()
            if lane is None:
                break
            if not self._may_start(lane, now, full):
                continue
            if full and not lane.idle:
                blocked.append(lane)
            elif (job := self._take(lane, now)) is not None:
                started.append(Start(lane=lane, job=job, reuse=self.slots.start(lane, now)))
                if lane.queue.jobs:
                    self._turns.push(lane)
        for lane in blocked:
            self._turns.push(lane)
        self.slots.crowded = full and bool(self._turns)
        return started

    def start_new(self, recipients: Sequence[Recipient], hop: Hop, now: int) -> Start | None:
        """Start a job for new recipients of one message over an idle connection of their lane; without
        `reuse` they wait there for one. None: no room, or something holds them. They count as claimed."""
        lane = self._lanes.get(hop.key)
        if lane is None or lane.hop.policy is not hop.policy or not self._is_free(lane):
            return None
        free = lane.idle > 0 and not lane.queue.jobs
        if not free and not lane.has_room(len(recipients)):
            return None
        room = self.room()
        if len(recipients) > min(room, self._bounds.maxrecips or room):
            return None
        if hop.sole:
            self.passing.belongs(recipients[0].domain, lane)
        self.enter(recipients)
        self._count += 1
        job = Job(hop, list(recipients), now, order=(lane.queue.turns.now, self._count))
        if not free:
            lane.coming += len(recipients)
        return Start(lane=lane, job=job, reuse=free and self.slots.start(lane, now))

    def undo_start(self, start: Start) -> None:
        """A job of `start_new` will not come."""
        self.leave(start.job.recipients)
        if not start.reuse:
            start.lane.coming -= len(start.job.recipients)

    def _may_start(self, lane: Lane, now: int, full: bool) -> bool:
        if not lane.queue.jobs or (not lane.idle and lane.connections >= self._limit(lane, now)):
            return False
        return full or lane.idle > 0 or not self.slots.refuses(lane, now, len(self._lanes) == 1)

    def next_job(self, lane: Lane, now: int) -> Job | None:
        """More work for a connection of `lane` that has become free; None: it is idle, or must go.

        A connection is not kept while other lanes wait for one, or its lane is suspended. Where a zone's
        tokens go by age, `dispatch` decides.
        """
        if not lane.queue.jobs or lane.suspended or self.slots.others_wait(lane):
            return None
        if self._throttle.by_age(lane):
            self._turns.push(lane)
            return None
        return self._take(lane, now)

    def keep(self, lane: Lane) -> bool:
        """Whether a connection without work may stay open; it counts as idle from now on if so."""
        if lane.suspended or self.slots.others_wait(lane):
            return False
        self.slots.rest(lane)
        if lane.queue.jobs:
            self._turns.push(lane)
        return True

    def review(self, now: int) -> None:
        """Check which lanes no longer answer, where that matters."""
        if self.slots.crowded:
            for lane in self._lanes.values():
                if lane.connections:
                    self.slots.judge(lane, now)

    # ------------------------------------------------------------ the active set is full

    def relieve(self, now: int) -> list[Give]:
        """Recipients to return, so that a lane without progress cannot hold the whole active set."""
        if self.room():
            return []
        lanes = [lane for lane in self._lanes.values() if lane.queue.jobs]
        most = max(self._bounds.queuecache // (2 * max(len(lanes), 1)), 1)
        given: list[Give] = []
        for lane in lanes:
            waiting = lane.queue.waiting
            waited = now - min([job.since for job in lane.queue.jobs.heads])
            if waiting <= most or (waited < SLOW_MS and now - lane.moved < STUCK_MS):
                continue
            # What stays should last until the rest comes back, at the speed seen so far.
            rest = max(waited * most // waiting, STUCK_MS)
            lane.share = Share(most, rest, lane.share.until).rested(now, lane.moved)
            self.passing.add(lane)
            cut = lane.queue.cut(most)
            given.append(Give(recipients=cut, after=lane.share.rest, why=Why.SHARE, lane=lane))
        return given

    def cull(self, over: Callable[[Lane, Recipient], bool]) -> list[Give]:
        """Recipients to return after too long a wait inside; not the probe of a suspended lane."""
        given: list[Give] = []
        for lane in self._lanes.values():

            def is_over(recipient: Recipient, lane: Lane = lane) -> bool:
                return over(lane, recipient)

            if gone := lane.queue.cull(is_over, spare_first=lane.suspended):
                given.append(Give(recipients=gone, after=0, why=Why.SHARE, lane=lane))
        return given

    def withdraw(self, misplaced: Callable[[Recipient, Hop], bool]) -> list[Recipient]:
        """Remove and return the waiting recipients that are `misplaced` in their lanes."""
        return self._throttle.withdraw(self._lanes.values(), misplaced)

    def empty(self) -> list[Recipient]:
        """Remove and return everything that waits, for an orderly stop."""
        return self.withdraw(lambda _recipient, _hop: True)

    # ------------------------------------------------------------ inside

    def _take(self, lane: Lane, now: int) -> Job | None:
        return self._throttle.take(lane, now) if self._throttle.governs(lane) else lane.queue.take()

    def _limit(self, lane: Lane, now: int) -> int:
        """Connections that a lane may have now."""
        if lane.suspended:
            return 1 if lane.suspension.until <= now else 0
        return min(max(1, int(lane.window.size)), self._top(lane))
