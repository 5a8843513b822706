"""Who is tried next, and over how many connections: a table of lanes, one for each hop. Pure.

* Zones take turns, and in the default zone lanes do, so a long lane delays no other; a named zone sends
  in order of arrival (see `turns`). Within a lane recipients go in order of arrival; those of one message
  travel together, at most `maxrecips` in one transaction.
* A lane's window, how many connections it may have, starts at `START_WINDOW` and stays within 1 .. what
  the hop's policy allows. It grows by one for each window's worth of transactions that went well, but
  not beyond what is in use by more than `START_WINDOW`, nor while the server takes `SLOWER` times as long
  as at its best; it shrinks by one when a server puts off a whole transaction, and halves when a
  connection breaks. When one more is refused it halves too, but not below those that work, and stays there
  for `CEILING_MS`; what was to go over the refused one goes over the others.
* Rates (see `rates`) of a lane, a zone, a sender are charged when an attempt starts. A lane or zone without
  tokens sleeps until its next one; mail of a sender without tokens steps aside, so that it delays no
  other's. Who would have to wait for long waits outside.
* A destination whose hosts all refuse, or on which connections only break, is suspended. One recipient
  is kept as its probe, the others go back untried. The first probe comes after the policy's probe
  interval, else `FIRST_PROBE_MS`, each further one after twice the time, none later than the first retry
  delay. The others come back soon after the probe has begun, and while it lasts ever more rarely.
* When the active set is full, lanes that hold more than their share and do not get on give back the rest,
  and get no more in until they have used up half of their share. A lane of which no transaction has
  ended yet has a quarter of the active set.

Decisions are returned (`Start`, `Give`), agents perform them and tell the table what came of it. Times
are ms; `now` is monotonic here, parking times are handed out relative (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from mqcd.core.model import Recipient
from mqcd.core.reply import Reply
from mqcd.deliver.lanes.lane import TRIAL_MS, Bounds, Feedback, Give, Job, Lane, LaneState, Start, Why
from mqcd.deliver.lanes.passing import Passing, Skip
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.lanes.slots import Slots
from mqcd.deliver.lanes.throttling import Throttle
from mqcd.deliver.lanes.turns import Turns
from mqcd.deliver.routing.policy import Hop

FIRST_PROBE_MS = 60_000
BREAKS = 3
"""Connections that break in a row, none going through, after which a destination counts as dead."""
STUCK_MS = 500
"""A lane of which nobody was tried for so long does not get on."""
SLOW_MS = 5000
"""A lane whose head of line waited longer than this is slow."""
MAX_EMPTY_LANES = 1000


class LaneTable:
    """All lanes, and the count of what is in flight."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lanes: dict[str, Lane] = {}
        self._turns = Turns()
        self._throttle = Throttle(self._turns)
        self._passing = Passing()
        self.slots = Slots(self._turns, bounds.maxconnections)
        self._count = 0
        self.active = 0
        """Recipients claimed and neither settled nor parked; the agent keeps it."""
        self.rebind(bounds, 0)

    def rebind(self, bounds: Bounds, now: int) -> None:
        """Go by other bounds from the next decision on; what is above them runs out by itself.

        What rates have used up stays used up. Domains may have other lanes from now on.
        """
        self._bounds = bounds
        self._passing.clear()
        self.slots.rebind(bounds.maxconnections)
        self._throttle.rebind(bounds, self._lanes.values(), now)

    # ------------------------------------------------------------ looking

    def lanes(self) -> Iterator[Lane]:
        """Every lane there is."""
        return iter(self._lanes.values())

    @property
    def suspended(self) -> int:
        """How many lanes are suspended."""
        return self._passing.suspended

    def states(self, now: int) -> list[LaneState]:
        """A snapshot for operators."""
        return [lane.state(self._limit(lane, now), now) for lane in self._lanes.values()]

    def state(self, name: str, now: int) -> LaneState | None:
        """What one lane is doing; None if there is none of this name."""
        lane = self._lanes.get(name)
        return None if lane is None else lane.state(self._limit(lane, now), now)

    def place(self, key: tuple[int, int]) -> int | None:
        """How many jobs stand before a recipient in its lane; None where it waits in none."""
        places = (lane.place(key) for lane in self._lanes.values())
        return next((place for place in places if place is not None), None)

    def room(self) -> int:
        """How many recipients may be claimed now: none until a tenth of the active set is free."""
        room = self._bounds.queuecache - self.active
        return room if room * 10 >= self._bounds.queuecache else 0

    def skip(self, now: int) -> Skip:
        """Domains that claims pass over, and for how many ms from now."""
        return self._passing.skip(now)

    def is_dead(self, domain: str) -> bool:
        """Whether a domain that claims pass over is so because its destination is suspended."""
        return self._passing.is_dead(domain)

    def next_wake(self, now: int) -> int | None:
        """In how many ms `dispatch` has something new to say by itself; None = not by itself."""
        alarm = self._throttle.next_alarm()
        times = [] if alarm is None else [alarm - now]
        if (self.active and not self.room()) or self.slots.overdrawn:
            times.append(STUCK_MS)
        return max(min(times), 0) if times else None

    # ------------------------------------------------------------ mail comes

    def add(self, recipient: Recipient, domain: str, hop: Hop, now: int) -> Give | None:
        """Put a claimed recipient into its lane; a Give when it must rather wait outside."""
        lane = self._lanes.get(hop.key)
        if lane is None:
            lane = self._lanes[hop.key] = Lane(hop, share=max(self._bounds.queuecache // 4, 1))
            self._throttle.limit_lane(lane, now)
        elif lane.hop is not hop:
            policy, lane.hop = lane.hop.policy, hop
            if policy is not hop.policy:
                self._throttle.limit_lane(lane, now)
        if hop.sole:
            self._passing.belongs(domain, lane)
        if (lane.suspended or lane.share) and (give := self._outside(lane, recipient, now)):
            return give
        limits = lane.limits
        sender = self._throttle.of_sender(recipient) if self._throttle.senders else None
        if sender is not None:
            limits = (*limits, sender)
        if limits and not lane.suspended:
            most = max(self._bounds.queuecache // 4, 1)
            after = max(limit.book(now, most, recipient.due > 0) for limit in limits)
            if after:
                return Give(recipients=(recipient,), after=after, why=Why.RATE, lane=lane)
        self._place(lane, recipient, hop, sender, now)
        if lane.suspended:
            self._throttle.alarm(lane.until, lane)
        self._turns.push(lane)
        return None

    def _outside(self, lane: Lane, recipient: Recipient, now: int) -> Give | None:
        """A Give when the lane takes nobody now: it is suspended and has its probe, or has its share."""
        if lane.suspended:
            if lane.jobs or lane.connections:
                wait = lane.until_probed(now)
                return Give(recipients=(recipient,), after=wait, why=Why.DEAD, lane=lane)
            return None
        wait = lane.beyond_share(now)
        if not wait:
            return None
        self._passing.add(lane)
        return Give(recipients=(recipient,), after=wait, why=Why.SHARE, lane=lane)

    def _place(self, lane: Lane, recipient: Recipient, hop: Hop, sender: Limit | None, now: int) -> None:
        """To the job of its message that is still open, else in a job of its own at the lane's end."""
        spid = recipient.envelope.spid
        several = spid & 1
        job = lane.open_jobs.get(spid) if several else None
        # One policy and one site make one transaction, also for several domains.
        if job is not None and job.hop.policy is hop.policy:
            job.recipients.append(recipient)
        else:
            self._count += 1
            job = Job(hop, [recipient], now, order=self._count, limit=sender)
            if not lane.jobs:
                lane.moved = max(lane.moved, now)
            lane.jobs.append(job)
            if several and not lane.suspended:
                lane.open_jobs[spid] = job
        lane.hold(job, 1)
        if several and len(job.recipients) == self._bounds.maxrecips:
            lane.open_jobs.pop(spid, None)

    def put_back(self, lane: Lane, job: Job) -> None:
        """A job that was started and not tried goes to the head of its lane."""
        lane.jobs.appendleft(job)
        lane.hold(job, len(job.recipients))
        self._turns.push(lane)

    # ------------------------------------------------------------ work starts

    def dispatch(self, now: int) -> list[Start]:
        """What to start now, zones and lanes in turn. The table counts it as started."""
        self._throttle.due(now)
        started: list[Start] = []
        blocked: list[Lane] = []
        for held in self.slots.released():
            if held.jobs:
                self._turns.push(held)
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
                if lane.jobs:
                    self._turns.push(lane)
        for lane in blocked:
            self._turns.push(lane)
        self.slots.crowded = full and bool(self._turns)
        return started

    def _may_start(self, lane: Lane, now: int, full: bool) -> bool:
        if not lane.jobs or (not lane.idle and lane.connections >= self._limit(lane, now)):
            return False
        return full or lane.idle > 0 or not self.slots.refuses(lane, now, len(self._lanes) == 1)

    def next_job(self, lane: Lane, now: int) -> Job | None:
        """More work for a connection of `lane` that has become free; None: it is idle, or must go.

        A connection is not kept while other lanes wait for one, or its lane is suspended. Where a zone's
        tokens go by age, `dispatch` decides.
        """
        if not lane.jobs or lane.suspended or self.slots.others_wait(lane):
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
        return True

    def review(self, now: int) -> None:
        """See which lanes have fallen silent, where that may matter."""
        if self.slots.crowded:
            for lane in self._lanes.values():
                if lane.connections:
                    self.slots.judge(lane, now)

    def took_back(self, lane: Lane, job: Job) -> None:
        """An attempt was taken back that had lasted too long: slow, until transactions show otherwise."""
        lane.pace.recent = max(lane.pace.recent, float(TRIAL_MS))
        self.put_back(lane, job)

    # ------------------------------------------------------------ what came of it

    def opened(self, lane: Lane) -> None:
        """A connection got through to a server that takes mail, or says so: see `went_through`."""
        lane.working += 1

    def went_through(self, lane: Lane, now: int, took: int = 0, feedback: Feedback = Feedback.GOOD) -> None:
        """A transaction ran to its end, in `took` ms: a destination that was dead is not."""
        lane.breaks = 0
        if lane.suspended:
            lane.revive()
            self._passing.revived(lane)
        lane.moved = now
        grown = lane.adapt(feedback, took, now, self._top(lane))
        self.slots.judge(lane, now)
        lane.held = lane.held and lane.doubted
        if grown and lane.jobs:
            self._turns.push(lane)

    def failed(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """No host of the destination could be reached. The caller closes the connection besides."""
        if lane.working:
            lane.refused(now)
            return None
        return self._suspend(lane, now, reply)

    def broke(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        """A connection broke in mid-transaction. The caller closes it besides."""
        lane.breaks += 1
        lane.window = max(1.0, lane.window / 2)
        return self._suspend(lane, now, reply) if lane.suspended or lane.breaks >= BREAKS else None

    def closed(self, lane: Lane, now: int, *, working: bool) -> None:
        """A connection is gone; `working` says whether it had got through."""
        self.slots.closed(lane)
        lane.working -= working
        if lane.jobs:
            self._turns.push(lane)
        elif len(self._lanes) > MAX_EMPTY_LANES and self._forgettable(lane, now):
            self._forget(lane)

    def probe(self, domains: Collection[str] | None, now: int) -> None:
        """Let the next probe of suspended lanes with mail for `domains` (None = of all) begin at once.

        If it fails, the next ones come as after the first failure.
        """
        for lane in self._passing.dead(domains):
            if lane.until > now:
                lane.until, lane.delay = now, 0
                if lane.jobs:
                    self._turns.push(lane)

    # ------------------------------------------------------------ the active set is full

    def relieve(self, now: int) -> list[Give]:
        """What to give back so that a lane which does not get on cannot hold the whole active set."""
        if self.room():
            return []
        lanes = [lane for lane in self._lanes.values() if lane.jobs]
        share = max(self._bounds.queuecache // (2 * max(len(lanes), 1)), 1)
        given: list[Give] = []
        for lane in lanes:
            waited = now - lane.jobs[0].since
            if lane.waiting <= share or (waited < SLOW_MS and now - lane.moved < STUCK_MS):
                continue
            # What stays should last until the rest comes back, at the speed seen so far.
            lane.share, lane.rest = share, max(waited * share // lane.waiting, STUCK_MS)
            self._passing.add(lane)
            after = lane.send_off(now)
            given.append(Give(recipients=lane.cut(share), after=after, why=Why.SHARE, lane=lane))
        return given

    def cull(self, over: Callable[[Lane, Recipient], bool]) -> list[Give]:
        """What to give back because it has waited inside for too long."""
        return [
            Give(recipients=gone, after=0, why=Why.SHARE, lane=lane)
            for lane in self._lanes.values()
            if (gone := lane.cull(over))
        ]

    def empty(self) -> list[Recipient]:
        """Take everything that waits out of the table, for an orderly stop."""
        self._throttle.release()
        return [recipient for lane in self._lanes.values() for recipient in lane.cut(0)]

    def forget(self, now: int) -> None:
        """Let go of suspended lanes for which nothing waits."""
        for lane in self._passing.deserted(now):
            if lane.limit is None or lane.limit.is_full(now):
                self._forget(lane)

    @property
    def remembers(self) -> bool:
        """Whether there may be something for `forget`."""
        return bool(self._passing)

    # ------------------------------------------------------------ inside

    def _take(self, lane: Lane, now: int) -> Job | None:
        if lane.limits or self._throttle.senders:
            return self._throttle.take(lane, now)
        return lane.take_off()

    def _limit(self, lane: Lane, now: int) -> int:
        if lane.suspended:
            return 1 if lane.until <= now else 0
        return min(max(1, int(lane.window)), self._top(lane))

    def _top(self, lane: Lane) -> int:
        """Connections that a lane may have at most."""
        return lane.hop.policy.connections or self._bounds.queuecache

    def _forgettable(self, lane: Lane, now: int) -> bool:
        busy = lane.connections or lane.suspended or lane.aside
        return not busy and (lane.limit is None or lane.limit.is_full(now))

    def _forget(self, lane: Lane) -> None:
        del self._lanes[lane.name]
        self._passing.forget(lane)

    def _suspend(self, lane: Lane, now: int, reply: Reply) -> Give | None:
        lane.failure, lane.failing = reply, max(now - lane.until, 0) if lane.suspended else 0
        if not lane.suspended or lane.until <= now:
            policy = lane.hop.policy
            first_retry = policy.schedule.delays[0]
            lane.delay = min(lane.delay * 2 or policy.probe_interval or FIRST_PROBE_MS, first_retry)
            lane.until = now + lane.delay
            self._throttle.alarm(lane.until, lane)
        lane.suspended = True
        self._passing.add(lane)
        lane.breaks = 0
        lane.window = 1.0
        if not lane.jobs:
            return None
        kept = lane.jobs[0]
        given = lane.cut(0)
        probe = Job(kept.hop, [given.pop(0)], kept.since, order=kept.order, limit=kept.limit)
        lane.jobs.append(probe)
        lane.hold(probe, 1)
        if not given:
            return None
        return Give(recipients=given, after=lane.until_probed(now), why=Why.DEAD, lane=lane)
