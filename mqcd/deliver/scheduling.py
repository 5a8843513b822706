"""Who is tried next, and over how many connections: a table of lanes, one for each hop. Pure.

* Lanes take turns, so a long one delays no other. Within a lane recipients go in order of arrival; those
  of one message travel together, at most `maxrecips` in one transaction.
* A lane's window, how many connections it may have, starts at `START_WINDOW`, grows by one for each
  window's worth of transactions that went through, halves when a connection fails, and stays within
  1 .. what the hop's policy allows.
* A destination whose hosts all refuse, or on which connections only break, is suspended. One recipient
  is kept as its probe, the others go back untried. The first probe comes after the policy's probe
  interval, else `FIRST_PROBE_MS`, each further one after twice the time, none later than the first retry
  delay.
* When the active set is full, lanes that hold more than their share and do not get on give back the rest.

Decisions are returned (`Start`, `Give`), agents perform them and tell the table what came of it. Times
are ms; `now` is monotonic here, parking times are handed out relative (`after`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mqcd.core.model import Recipient
from mqcd.deliver.lanes import Bounds, Give, Job, Lane, LaneState, Start
from mqcd.deliver.policy import Hop

FIRST_PROBE_MS = 60_000
PROBE_GRACE_MS = 10_000
"""How long after a probe has begun the others of its destination come back to look."""
BREAKS = 3
"""Connections that break in a row, none going through, after which a destination counts as dead."""
STUCK_MS = 1000
"""A lane of which nobody was tried for so long does not get on."""
SLOW_MS = 5000
"""A lane whose head of line waited longer than this is slow."""
MIN_REST_MS = 1000
MAX_REST_MS = 30_000
MAX_DOMAINS = 1000
"""Domains of a suspended lane that are named to the store; others are claimed and given back."""
MAX_EMPTY_LANES = 1000


class LaneTable:
    """All lanes, and the count of what is in flight."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lanes: dict[str, Lane] = {}
        self._line: deque[Lane] = deque()
        self._passed: dict[str, Lane] = {}
        """Lanes whose domains claims pass over, by name."""
        self._crowded = False
        self.active = 0
        """Recipients claimed and neither settled nor parked; the agent keeps it."""
        self.connections = 0

    def rebind(self, bounds: Bounds) -> None:
        """Go by other bounds from the next decision on; what is above them runs out by itself."""
        self._bounds = bounds

    # ------------------------------------------------------------ looking

    def __len__(self) -> int:
        return len(self._lanes)

    def lanes(self) -> Iterator[Lane]:
        """Every lane there is."""
        return iter(self._lanes.values())

    @property
    def suspended(self) -> int:
        """How many destinations are suspended."""
        return sum(lane.suspended for lane in self._passed.values())

    def states(self, now: int) -> list[LaneState]:
        """A snapshot for operators."""
        return [self._state(lane, now) for lane in self._lanes.values()]

    def state(self, name: str, now: int) -> LaneState | None:
        """What one lane is doing; None if there is none of this name."""
        lane = self._lanes.get(name)
        return None if lane is None else self._state(lane, now)

    def place(self, key: tuple[int, int]) -> int | None:
        """How many jobs stand before a recipient in its lane; None where it waits in none."""
        for lane in self._lanes.values():
            for place, job in enumerate(lane.jobs):
                if any(recipient.key == key for recipient in job.recipients):
                    return place
        return None

    def _state(self, lane: Lane, now: int) -> LaneState:
        return LaneState(
            name=lane.name,
            destination=lane.hop.destination.name,
            zone=lane.hop.policy.zone,
            waiting=lane.waiting,
            connections=lane.connections,
            idle=lane.idle,
            window=self._limit(lane, now),
            suspended=lane.suspended,
            probe_in_ms=max(lane.until - now, 0) if lane.suspended else 0,
        )

    def room(self) -> int:
        """How many recipients may be claimed now: none until a tenth of the active set is free."""
        room = self._bounds.queuecache - self.active
        return room if room * 10 >= self._bounds.queuecache else 0

    def skip(self, now: int) -> dict[str, int]:
        """Domains that claims pass over, and for how many ms from now."""
        skipped: dict[str, int] = {}
        for lane in tuple(self._passed.values()):
            rest = self._rest(lane, now) if lane.suspended else lane.rest_until - now
            if rest > 0:
                skipped.update(dict.fromkeys(lane.domains, rest))
            elif not lane.suspended:
                del self._passed[lane.name]
        return skipped

    def next_wake(self, now: int) -> int | None:
        """In how many ms `dispatch` has something new to say by itself; None = not by itself."""
        times = [lane.until - now for lane in self._passed.values() if lane.suspended and lane.jobs]
        if self.active and not self.room():
            times.append(STUCK_MS)
        return max(min(times), 0) if times else None

    # ------------------------------------------------------------ mail comes

    def add(self, recipient: Recipient, domain: str, hop: Hop, now: int) -> Give | None:
        """Put a claimed recipient into its lane; a Give when it must rather wait outside."""
        lane = self._lanes.get(hop.key)
        if lane is None:
            lane = self._lanes[hop.key] = Lane(hop)
        lane.hop = hop
        if len(lane.domains) < MAX_DOMAINS:
            lane.domains.add(domain)
        if lane.suspended and (lane.jobs or lane.connections):
            return Give(recipients=(recipient,), after=self._rest(lane, now))
        spid = recipient.envelope.spid
        job = lane.open_jobs.get(spid) if spid & 1 else None
        if job is not None and job.hop is hop:
            job.recipients.append(recipient)
        else:
            job = Job(hop, [recipient], now, probe=lane.suspended)
            if not lane.jobs:
                lane.moved = max(lane.moved, now)
            lane.jobs.append(job)
            if spid & 1 and not lane.suspended:
                lane.open_jobs[spid] = job
        lane.waiting += 1
        if spid & 1 and len(job.recipients) == self._bounds.maxrecips:
            lane.open_jobs.pop(spid, None)
        self._enqueue(lane)
        return None

    def put_back(self, lane: Lane, job: Job) -> None:
        """A job that was started and not tried goes to the head of its lane."""
        lane.jobs.appendleft(job)
        lane.waiting += len(job.recipients)
        self._enqueue(lane)

    # ------------------------------------------------------------ work starts

    def dispatch(self, now: int) -> list[Start]:
        """What to start now, lanes in turn. The table counts it as started."""
        for lane in self._passed.values():
            if lane.suspended and lane.jobs and lane.until <= now:
                self._enqueue(lane)
        started: list[Start] = []
        blocked: list[Lane] = []
        while self._line:
            lane = self._line.popleft()
            lane.queued = False
            if not lane.jobs:
                continue
            if lane.idle:
                lane.idle -= 1
                started.append(Start(lane=lane, job=self._pop(lane), reuse=True))
            elif lane.connections >= self._limit(lane, now):
                continue
            elif self._full():
                blocked.append(lane)
                continue
            else:
                lane.connections += 1
                self.connections += 1
                started.append(Start(lane=lane, job=self._pop(lane), reuse=False))
            self._enqueue(lane)
        for lane in blocked:
            self._enqueue(lane)
        self._crowded = bool(blocked)
        return started

    def next_job(self, lane: Lane) -> Job | None:
        """More work for a connection of `lane` that has become free; None: it is idle, or must go.

        A connection is not kept while other lanes wait for one (`crowded`) or its lane is suspended.
        """
        if not lane.jobs or self._crowded or lane.suspended:
            return None
        return self._pop(lane)

    def keep(self, lane: Lane) -> bool:
        """Whether a connection without work may stay open; it counts as idle from now on if so."""
        if self._crowded or lane.suspended:
            return False
        lane.idle += 1
        return True

    # ------------------------------------------------------------ what came of it

    def opened(self, lane: Lane) -> None:
        """A connection got through to a server that takes mail."""
        lane.working += 1
        if lane.suspended:
            lane.suspended = False
            lane.window = 1.0
            lane.delay = 0

    def went_through(self, lane: Lane, now: int) -> None:
        """A transaction ran to its end, whatever the replies: the server works."""
        lane.breaks = 0
        lane.moved = now
        top = self._top(lane)
        if lane.window < top:
            lane.window = min(lane.window + 1 / lane.window, top)
            if lane.jobs:
                self._enqueue(lane)

    def failed(self, lane: Lane, now: int) -> Give | None:
        """No host of the destination could be reached. The caller closes the connection besides."""
        if lane.working:
            lane.window = max(1.0, lane.window / 2)
            return None
        return self._suspend(lane, now)

    def broke(self, lane: Lane, now: int) -> Give | None:
        """A connection broke in mid-transaction. The caller closes it besides."""
        lane.breaks += 1
        lane.window = max(1.0, lane.window / 2)
        return self._suspend(lane, now) if lane.breaks >= BREAKS else None

    def left(self, lane: Lane) -> None:
        """An idle connection takes no work any more."""
        lane.idle -= 1

    def closed(self, lane: Lane, working: bool) -> None:
        """A connection is gone; `working` says whether it had got through."""
        lane.connections -= 1
        self.connections -= 1
        lane.working -= working
        if lane.jobs:
            self._enqueue(lane)
        elif not lane.connections and not lane.suspended and len(self._lanes) > MAX_EMPTY_LANES:
            del self._lanes[lane.name]

    # ------------------------------------------------------------ the active set is full

    def relieve(self, now: int) -> list[Give]:
        """What to give back so that a lane which does not get on cannot hold the whole active set."""
        if self.room():
            return []
        lanes = [lane for lane in self._lanes.values() if lane.waiting]
        share = max(self._bounds.queuecache // (2 * max(len(lanes), 1)), 1)
        given: list[Give] = []
        for lane in lanes:
            waited = now - lane.jobs[0].since
            if lane.waiting <= share or (waited < SLOW_MS and now - lane.moved < STUCK_MS):
                continue
            # What stays should last until the rest comes back, at the speed seen so far.
            rest = min(max(waited * share // lane.waiting, MIN_REST_MS), MAX_REST_MS)
            lane.rest_until = now + rest
            self._passed[lane.name] = lane
            given.append(Give(recipients=self._cut(lane, share), after=rest))
        return given

    def empty(self) -> list[Recipient]:
        """Take everything that waits out of the table, for an orderly stop."""
        return [recipient for lane in self._lanes.values() for recipient in self._cut(lane, 0)]

    # ------------------------------------------------------------ inside

    def _limit(self, lane: Lane, now: int) -> int:
        if lane.suspended:
            return 1 if lane.until <= now else 0
        return min(max(1, int(lane.window)), self._top(lane))

    def _top(self, lane: Lane) -> int:
        """Connections that a lane may have at most."""
        return lane.hop.policy.connections or self._bounds.queuecache

    def _full(self) -> bool:
        return 0 < self._bounds.maxconnections <= self.connections

    def _enqueue(self, lane: Lane) -> None:
        if not lane.queued:
            lane.queued = True
            self._line.append(lane)

    def _pop(self, lane: Lane) -> Job:
        job = lane.jobs.popleft()
        lane.waiting -= len(job.recipients)
        if lane.open_jobs:
            lane.open_jobs.pop(job.recipients[0].envelope.spid, None)
        return job

    def _rest(self, lane: Lane, now: int) -> int:
        """How long recipients of a suspended lane wait outside: until shortly after its probe."""
        if not lane.jobs and not lane.connections:
            return lane.until - now
        return max(lane.until - now, 0) + PROBE_GRACE_MS

    def _suspend(self, lane: Lane, now: int) -> Give | None:
        if not lane.suspended or lane.until <= now:
            policy = lane.hop.policy
            first_retry = policy.schedule.delays[0]
            lane.delay = min(lane.delay * 2 or policy.probe_interval or FIRST_PROBE_MS, first_retry)
            lane.until = now + lane.delay
        lane.suspended = True
        self._passed[lane.name] = lane
        lane.breaks = 0
        lane.window = 1.0
        kept = lane.jobs[0] if lane.jobs else None
        if kept is None:
            return None
        given = self._cut(lane, 0)
        probe = Job(kept.hop, [given.pop(0)], kept.since, begun=False, probe=True)
        lane.jobs.append(probe)
        lane.waiting = 1
        return Give(recipients=given, after=self._rest(lane, now)) if given else None

    def _cut(self, lane: Lane, keep: int) -> list[Recipient]:
        """Take jobs off the end of a lane while it has more than `keep` recipients."""
        cut: list[Job] = []
        while lane.jobs and lane.waiting > keep:
            job = lane.jobs.pop()
            lane.waiting -= len(job.recipients)
            lane.open_jobs.pop(job.recipients[0].envelope.spid, None)
            cut.append(job)
        return [recipient for job in reversed(cut) for recipient in job.recipients]
