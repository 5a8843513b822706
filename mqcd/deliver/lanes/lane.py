"""What the lane table holds and what it decides: values and their meaning. Pure.

`Job` and `Lane` belong to the table alone; agents hand them back and do not write to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from mqcd.config.settings import Rate
from mqcd.core.model import Recipient
from mqcd.core.reply import Reply
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.routing.policy import Hop

START_WINDOW = 5.0
"""Connections that an unknown destination may have at once."""
PERIOD_MS = 300_000
"""How long the best pace of a lane stays its measure: until the end of the next such period."""
SLOWER = 2.0
"""A server that takes so many times as long as at its best has enough connections."""
MIN_REST_MS = 100
MAX_REST_MS = 30_000
LONG_REST_MS = 300_000
"""The longest rest of a lane from which nothing came since the last one."""
CEILING_MS = 60_000
"""How long the number of connections that a server took is the most that it is asked for."""
PROBE_GRACE_MS = 1000
"""How long after a probe has begun the others of its destination come back to look; up to ten times as
long where the last probe took a while to fail."""
MOST_GRACE_MS = 60_000
PROMPT_MS = 3000
"""A destination answers whose transactions take no longer, smoothed."""
TRIAL_MS = 10_000
"""One from which nothing came for so long, though attempts are under way, does not."""
SLACK_MS = 20
"""So much longer means nothing."""


@dataclass(slots=True, eq=False)
class Job:
    """Recipients of one message that travel together."""

    hop: Hop
    recipients: list[Recipient]
    since: int
    """When it came into its lane."""
    begun: bool = False
    """The store knows that the attempt has begun."""
    order: int = 0
    """Number of its arrival in the table."""
    limit: Limit | None = None
    """Its sender's."""
    paid: bool = False
    """The limits that hold for it have been charged."""


@dataclass(slots=True)
class Pace:
    """How quick a lane's server is, and how quick it was."""

    recent: float = 0.0
    """Time of a transaction, the last eight or so weighing most, ms; 0 = none yet."""
    best: float = 0.0
    """The least of `recent` in this period; 0 = none yet."""
    before: float = 0.0
    """The least of the period before."""
    since: int = 0
    """When this period began."""

    def holds(self, took: int, now: int) -> bool:
        """Count one transaction; whether the server is still about as quick as it was."""
        recent = self.recent
        self.recent = recent = recent + (took - recent) / 8 if recent else float(max(took, 1))
        if now - self.since >= PERIOD_MS:
            self.before, self.best, self.since = self.best, recent, now
        elif recent < self.best or not self.best:
            self.best = recent
        if recent <= SLACK_MS:
            return True
        best = self.before if 0 < self.before < self.best else self.best
        return recent <= best * SLOWER + SLACK_MS


class Feedback(Enum):
    """What a transaction says of how much its server will take."""

    GOOD = "good"
    """Somebody's fate was decided."""
    NEUTRAL = "neutral"
    """Every recipient was put off, each by a reply of its own."""
    PUSHED_BACK = "pushed back"
    """The server put off the whole transaction."""


@dataclass(slots=True, eq=False)
class Lane:
    """What is known of one hop."""

    hop: Hop
    window: float = START_WINDOW
    ceiling: float = 0.0
    """The most that the window may grow to, until `ceiling_until`."""
    ceiling_until: int = 0
    jobs: deque[Job] = field(default_factory=deque)
    waiting: int = 0
    """Recipients in `jobs`."""
    open_jobs: dict[int, Job] = field(default_factory=dict)
    """By SPID: the job that takes further recipients of that message."""
    connections: int = 0
    """Open or being opened."""
    idle: int = 0
    """Of those, open and without work."""
    working: int = 0
    """Of those, got through to a server that takes mail."""
    breaks: int = 0
    """Connections that broke since the last transaction that went through."""
    moved: int = 0
    """When a transaction last ended, or its first recipients came."""
    pace: Pace = field(default_factory=Pace)
    limit: Limit | None = None
    """Its own rate."""
    limits: tuple[Limit, ...] = ()
    """Its own and its zone's."""
    asleep: int = 0
    """Until when there is nothing to start for want of tokens of its own."""
    aside: int = 0
    """Recipients that wait for their sender's tokens, out of `jobs` meanwhile."""
    suspended: bool = False
    failing: int = 0
    """How long its last probe took to fail, ms."""
    failure: Reply | None = None
    """Why it is suspended."""
    until: int = 0
    """When the probe may start."""
    delay: int = 0
    """Time between the last two probes."""
    unknown: bool = True
    """No transaction has ended yet: whether it gets on is not known."""
    share: int = 0
    """Recipients that it may hold, since it is unknown or did not get on; 0 = as many as come."""
    rest: int = 0
    """For how long it was passed over last."""
    rest_until: int = 0
    """Until when its domains are passed over because it holds more than its share."""
    domains: set[str] = field(default_factory=set)
    queued: bool = False
    """Stands in the table's line of lanes that may have something to start."""
    begun: int = 0
    """When something came under way, and nothing else was."""
    doubted: bool = True
    """Its connections are counted as those of one that does not answer, see `slots`."""
    held: bool = False
    """It waits, out of line, for a connection that it may have, see `slots`."""

    @property
    def name(self) -> str:
        """The hop's key."""
        return self.hop.key

    def answers(self, now: int) -> bool:
        """Whether its recent transactions ended in reasonable time, and what is under way may yet."""
        if self.unknown or self.suspended or self.pace.recent > PROMPT_MS:
            return False
        return self.connections == self.idle or now - max(self.moved, self.begun) <= TRIAL_MS

    def adapt(self, feedback: Feedback, took: int, now: int, top: int) -> bool:
        """Fit the window to how a transaction went; whether it has grown. `top` is its limit."""
        if self.unknown:
            self.unknown, self.share = False, 0
        quick = self.pace.holds(took, now)
        if feedback is Feedback.PUSHED_BACK:
            self.window = max(1.0, self.window - 1)
        elif feedback is Feedback.GOOD and quick:
            most = min(top, self.ceiling) if now < self.ceiling_until else top
            if self.window < most and self.window < self.connections + START_WINDOW:
                self.window = min(self.window + 1 / self.window, most)
                return True
        return False

    def revive(self) -> None:
        """It takes mail again; how much, is to be found out anew from the window of 1 that its death left."""
        self.suspended = False
        self.delay = 0
        self.failure = None

    def refused(self, now: int) -> None:
        """One more connection was refused while others work: those are what the server takes."""
        self.window = max(1.0, self.window / 2, float(self.working))
        self.ceiling, self.ceiling_until = self.window, now + CEILING_MS

    def state(self, window: int, now: int) -> LaneState:
        """A snapshot; `window` is how many connections it may have now."""
        return LaneState(
            name=self.name,
            destination=self.hop.destination.name,
            zone=self.hop.policy.zone,
            waiting=self.waiting + self.aside,
            connections=self.connections,
            idle=self.idle,
            window=window,
            suspended=self.suspended,
            probe_in_ms=max(self.until - now, 0) if self.suspended else 0,
            rate_in_ms=max((limit.wait(1, now) for limit in self.limits), default=0),
        )

    def place(self, key: tuple[int, int]) -> int | None:
        """How many jobs stand before a recipient; None where it waits elsewhere."""
        for place, job in enumerate(self.jobs):
            if any(recipient.key == key for recipient in job.recipients):
                return place
        return None

    def until_probed(self, now: int) -> int:
        """How long recipients wait outside while it is suspended: until shortly after its probe, ms."""
        if not self.jobs and not self.connections:
            return self.until - now
        late = now - self.until
        grace = min(max(self.failing // 6, PROBE_GRACE_MS), 10 * PROBE_GRACE_MS)
        return max(-late, 0) + min(max(4 * late, grace), MOST_GRACE_MS)

    def comes_back(self, now: int) -> int | None:
        """In how many ms a recipient that was tried in vain comes back at the latest; None = its retry delay
        counts, for the lane is not suspended. Others come before it: each has its turn as the probe."""
        return self.until_probed(now) + PROBE_GRACE_MS if self.suspended else None

    def send_off(self, now: int) -> int:
        """What it may not hold is passed over for as long as it rests; how long that is, ms."""
        most = MAX_REST_MS if self.moved > self.rest_until - self.rest else LONG_REST_MS
        self.rest = min(max(self.rest, MIN_REST_MS), most)
        self.rest_until = now + self.rest
        return self.rest

    def passed_over(self, now: int) -> int:
        """How long claims pass over its mail, ms; 0 = no longer.

        A rest that ends with its share still held goes over into the next one: nobody is claimed to see it.
        """
        if self.suspended:
            return self.until_probed(now)
        rest = self.rest_until - now
        return self.beyond_share(now) if rest <= 0 and self.share else rest

    def beyond_share(self, now: int) -> int:
        """How long more mail for a lane with a share stays outside, ms; 0 = it may come in."""
        if self.waiting < self.share:
            if self.waiting * 2 < self.share and not self.unknown:
                self.share = 0
            return 0
        if self.rest_until <= now:
            self.rest *= 2
            return self.send_off(now)
        return self.rest_until - now

    def hold(self, job: Job, recipients: int) -> None:
        """So many recipients more (or less) of a job wait here."""
        self.waiting += recipients
        if self.limits:
            for limit in self.limits:
                limit.held += recipients
        if job.limit is not None:
            job.limit.held += recipients

    def take_off(self) -> Job:
        """The first job, out of the lane now."""
        job = self.jobs.popleft()
        if self.open_jobs:
            self._close(job)
        self.hold(job, -len(job.recipients))
        return job

    def cut(self, keep: int) -> list[Recipient]:
        """Take jobs off the end while there are more than `keep` recipients."""
        cut: list[Job] = []
        while self.jobs and self.waiting > keep:
            job = self.jobs.pop()
            self._close(job)
            self.hold(job, -len(job.recipients))
            cut.append(job)
        return [recipient for job in reversed(cut) for recipient in job.recipients]

    def cull(self, over: Callable[[Lane, Recipient], bool]) -> list[Recipient]:
        """Take out all that wait and are `over`, but for the probe of a dead destination."""
        gone: list[Recipient] = []
        for job in tuple(self.jobs)[self.suspended :]:
            culled = [each for each in job.recipients if over(self, each)]
            if culled:
                gone += culled
                self.hold(job, -len(culled))
                if len(culled) == len(job.recipients):
                    self._close(job)
                    self.jobs.remove(job)
                else:
                    left = {each.qid for each in job.recipients} - {each.qid for each in culled}
                    job.recipients = [each for each in job.recipients if each.qid in left]
        return gone

    def split_first(self, size: int) -> None:
        """Make the first `size` recipients of the first job a job of their own."""
        job = self.jobs[0]
        if len(job.recipients) > size:
            first = Job(job.hop, job.recipients[:size], job.since, order=job.order, limit=job.limit)
            job.recipients = job.recipients[size:]
            self.jobs.appendleft(first)

    def step_aside(self) -> Job:
        """The first job, out of the lane until it comes back; its limits still count it."""
        job = self.jobs.popleft()
        self._close(job)
        self.waiting -= len(job.recipients)
        self.aside += len(job.recipients)
        return job

    def come_back(self, job: Job) -> None:
        """A job that stood aside is at the head again."""
        self.aside -= len(job.recipients)
        self.waiting += len(job.recipients)
        self.jobs.appendleft(job)

    def _close(self, job: Job) -> None:
        """No further recipients join a job."""
        spid = job.recipients[0].envelope.spid
        if self.open_jobs.get(spid) is job:
            del self.open_jobs[spid]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneState:
    """A lane as operators see it."""

    name: str
    destination: str
    zone: str
    waiting: int
    """Recipients in the active set that are not being tried."""
    connections: int
    idle: int
    window: int
    """Connections that it may have now."""
    suspended: bool
    probe_in_ms: int
    """0 unless suspended."""
    rate_in_ms: int
    """Until its rate, and its zone's, let the next recipient go; 0 = at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Try a job: over an idle connection of its lane, or over a new one."""

    lane: Lane
    job: Job
    reuse: bool


class Why(Enum):
    """Why recipients are given back untried."""

    DEAD = "dead"
    """Their destination is."""
    RATE = "rate"
    """A limit lets them go later."""
    SHARE = "share"
    """Their lane holds more than its share of the active set and does not get on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Give:
    """Park recipients, to be due again `after` ms from now."""

    recipients: Sequence[Recipient]
    after: int
    why: Why
    lane: Lane


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The settings that bound the table, by their names in `deliver`; 0 = no limit."""

    queuecache: int
    maxconnections: int
    maxrecips: int
    zone_rates: Mapping[str, Rate] = field(default_factory=dict)
    sender_rates: Mapping[str, Rate] = field(default_factory=dict)
    """By address or domain, "<>" the null sender."""
