"""The jobs of one lane in the order in which it serves them, and how many recipients they have. Pure.

They go by priority, without starving any (RFC 6710). Jobs of one priority stand in the order of their
turns (see `tenants`), those that come back before them. The highest priority that waits goes first; but where
LOWER_TURN - 1 turns in a row have gone to it while a lower one waited, the next goes to the first job, by its
order, of the lower ones.

Example, with LOWER_TURN 3: `a` to `e` have priority 5, `x` and `y` 0, `z` -1. They came as `x`, `z`, `y`, and
then the others. They go as `a`, `b`, `x`, `c`, `d`, `z`, `e`, `y`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from mqcd.core.model import Envelope, Recipient
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.lanes.tenants import TurnOrder
from mqcd.deliver.routing.policy import Hop

LOWER_TURN = 8
"""One in so many turns goes to lower priorities."""


@dataclass(slots=True, eq=False)
class Job:
    """Recipients of one message that travel together."""

    hop: Hop
    envelope: Envelope
    """Its message's."""
    recipients: list[Recipient]
    since: int
    """When it came into its lane."""
    content: bytes | None = None
    """Its message's octets, where the store had them at hand."""
    begun: bool = False
    """The store has recorded the begin of the attempt."""
    order: tuple[int, int] = (0, 0)
    """Its turn, by which its lane and named zone order it, and the number of its arrival in the table."""
    limit: Limit | None = None
    """Its sender's."""
    few: bool = False
    """It came in although others have to wait outside, since its tenant holds next to nothing."""
    paid: bool = False
    """Its limits have been charged."""

    @property
    def been_outside(self) -> bool:
        """Whether its first recipient was parked until a time, or deferred. Of new mail `due` is 0."""
        return self.recipients[0].due > 0

    def of(self, recipients: list[Recipient]) -> Job:
        """The same job, of some of its recipients."""
        return replace(self, recipients=recipients)


def recipients_of(jobs: Iterable[Job]) -> list[Recipient]:
    """Those of all jobs, in order."""
    return [recipient for job in jobs for recipient in job.recipients]


class Rows:
    """The waiting jobs of a lane in order: a row for each priority that they have, mostly one.

    After each call no row is empty, but `row` where no job waits, and `row` has the turn by `_urgent` and the
    first jobs of all rows: what changes these ends in `_choose`.
    """

    __slots__ = ("_rows", "_urgent", "row")

    def __init__(self) -> None:
        self.row: deque[Job] = deque()
        """The row that has the turn, the first job first. Others only read it."""
        self._rows = {0: self.row}
        """All rows, by priority."""
        self._urgent = 0
        """How many turns have gone to the highest priority in a row while a lower one waited."""

    def __iter__(self) -> Iterator[Job]:
        """The first job first: the row that has the turn, then the others by priority."""
        ordered = [self._rows[priority] for priority in sorted(self._rows, reverse=True)]
        return chain(self.row, *(row for row in ordered if row is not self.row))

    @property
    def longest_since(self) -> int:
        """When the job came that has waited longest of the first ones of all priorities. Raises IndexError
        where there is none."""
        return min(row[0].since for row in self._rows.values())

    def append(self, job: Job) -> None:
        """A new job, in its turn among the others of its priority."""
        row = self._rows.get(job.envelope.priority)
        if row is None:
            self._rows[job.envelope.priority] = deque((job,))
            self._choose()
        elif not row or job.order > row[-1].order:
            # No other job is the first now: the turn stays where it is.
            row.append(job)
        else:
            row.insert(bisect_right(row, job.order, key=_order), job)
            self._choose()

    def put_first(self, job: Job) -> None:
        """A job that was taken out, before the others of its priority."""
        self._rows.setdefault(job.envelope.priority, deque()).appendleft(job)
        self._choose()

    def put_before(self, first: Job) -> None:
        """A part of the first job, with its order, before it: the turn stays theirs."""
        self.row.appendleft(first)

    def take(self) -> Job:
        """The first job, which has its turn. Raises IndexError where there is none."""
        job = self.row.popleft()
        if len(self._rows) > 1:
            self._urgent = self._urgent + 1 if self.row is self._rows[max(self._rows)] else 0
            self._choose()
        elif self._urgent:
            self._urgent = 0
        return job

    def take_out(self) -> Job:
        """The first job, which has no turn: that goes to the next. Raises IndexError where there is none."""
        job = self.row.popleft()
        self._choose()
        return job

    def take_last(self) -> Job:
        """The last job of the lowest priority, which may have the turn. Raises IndexError."""
        job = self._rows[min(self._rows)].pop()
        self._choose()
        return job

    def remove(self, job: Job) -> None:
        """Take out a job that waits."""
        self._rows[job.envelope.priority].remove(job)
        self._choose()

    def _choose(self) -> None:
        """Drop the row that has become empty, and give one the turn."""
        if len(self._rows) == 1:
            return
        rows = self._rows = {priority: row for priority, row in self._rows.items() if row}
        self.row = rows[max(rows)]
        if self._urgent >= LOWER_TURN - 1 and len(rows) > 1:
            lower = [row for row in rows.values() if row is not self.row]
            self.row = min(lower, key=lambda row: row[0].order)


def _order(job: Job) -> tuple[int, int]:
    return job.order


@dataclass(slots=True, eq=False)
class JobQueue:
    """The waiting jobs of a lane, and how many recipients they have. Each limit on a job counts its
    recipients while they wait: `Limit.held` is changed here alone.

    | | `waiting` | `few`, `Limit.held` | `aside` | `_joinable` | `turns` |
    |---|---|---|---|---|---|
    | `append` | + | + | | open, if it may be joined | |
    | `join` | + | + | | closed once full | |
    | `split_first` | | | | | |
    | `take` | - | - | | closed | served |
    | `put_back` | + | + | | | |
    | `step_aside` | - | | + | closed | |
    | `come_back` | + | | - | | |
    | `cut`, `keep_one`: each job that goes | - | - | | closed | given back |
    | `keep_one`: the first, which stays with one recipient | - | - | | closed | |
    | `cull` | - | - | | closed, if no recipient is left | given back, likewise |
    | `bind`, `bind_senders` | | from the old limits to the new | | | |
    """

    jobs: Rows = field(default_factory=Rows)
    """Only read elsewhere."""
    waiting: int = 0
    """Recipients in `jobs`."""
    since: int = 0
    """No job that waits came before; kept so that a look at ten thousand lanes need not visit their jobs."""
    few: int = 0
    """Recipients of jobs that are `few`."""
    aside: int = 0
    """Recipients that wait for their sender's tokens, out of `jobs` meanwhile."""
    turns: TurnOrder = field(default_factory=TurnOrder)
    """The lane's, or those of its named zone."""
    limits: tuple[Limit, ...] = ()
    """Those of the lane and of its zone."""
    _joinable: dict[int, Job] = field(default_factory=dict)
    """By SPID: the job that takes further recipients of that message."""

    def join(self, recipient: Recipient, hop: Hop, most: int) -> bool:
        """Add a recipient to the job of its message, if one waits that has room and goes the same way;
        it is full with `most` recipients."""
        job = self._joinable.get(recipient.envelope.spid)
        # One policy and one site make one transaction, also for several domains.
        if job is None or not job.hop.fits(hop):
            return False
        job.recipients.append(recipient)
        self.count(job, 1)
        if len(job.recipients) >= most:
            self._close(job)
        return True

    def append(self, job: Job, joinable: bool) -> None:
        """A new job, in its turn among the others of its priority."""
        self._age(job)
        self.jobs.append(job)
        if joinable:
            self._joinable[job.envelope.spid] = job
        self.count(job, len(job.recipients))

    def put_back(self, job: Job) -> None:
        """A job that was started and not tried, before the others of its priority."""
        self._put_first(job)
        self.count(job, len(job.recipients))

    def take(self) -> Job:
        """The first job, out of the queue now."""
        job = self.jobs.take()
        self.turns.served(job.order[0])
        if self._joinable:
            self._close(job)
        self.count(job, -len(job.recipients))
        return job

    def split_first(self, size: int) -> Job:
        """Make the first `size` recipients of the first job a job of their own; returns the first job."""
        job = self.jobs.row[0]
        if len(job.recipients) > size:
            first = job.of(job.recipients[:size])
            job.recipients = job.recipients[size:]
            self.jobs.put_before(first)
        return self.jobs.row[0]

    def step_aside(self) -> Job:
        """The first job, out of the queue until it comes back; its limits still count it."""
        job = self.jobs.take_out()
        self._close(job)
        self.waiting -= len(job.recipients)
        self.aside += len(job.recipients)
        return job

    def come_back(self, job: Job) -> None:
        """Put a job that was set apart back, before the others of its priority."""
        self._put_first(job)
        self.aside -= len(job.recipients)
        self.waiting += len(job.recipients)

    def cut(self, keep: int) -> list[Recipient]:
        """Take the last jobs of the lowest priorities while there are more than `keep` recipients."""
        cut: list[Job] = []
        while self.waiting > keep:
            job = self._take_last()
            self.turns.give_back(job.envelope.tenant)
            cut.append(job)
        return recipients_of(reversed(cut))

    def keep_one(self) -> list[Recipient]:
        """Take everything out but the first recipient."""
        if not self.waiting:
            return []
        first = self.jobs.row[0]
        gone = recipients_of(self.jobs)[1:]
        while self.waiting:
            if (job := self._take_last()) is not first:
                self.turns.give_back(job.envelope.tenant)
        self.append(first.of(first.recipients[:1]), False)
        return gone

    def cull(self, over: Callable[[Recipient], bool], *, spare_first: bool) -> list[Job]:
        """Take out the recipients that are `over`, as parts of their jobs; with `spare_first` the first job
        stays as it is."""
        gone: list[Job] = []
        for job in tuple(self.jobs)[spare_first:]:
            culled = [each for each in job.recipients if over(each)]
            if not culled:
                continue
            gone.append(job.of(culled))
            self.count(job, -len(culled))
            if len(culled) == len(job.recipients):
                self._close(job)
                self.jobs.remove(job)
                self.turns.give_back(job.envelope.tenant)
            else:
                left = {each.qid for each in job.recipients} - {each.qid for each in culled}
                job.recipients = [each for each in job.recipients if each.qid in left]
        return gone

    def limits_of(self, job: Job) -> tuple[Limit, ...]:
        """The rates that count a job: its sender's first, as its lack of tokens delays no other's mail."""
        return (job.limit, *self.limits) if job.limit else self.limits

    def bind(self, limits: tuple[Limit, ...]) -> None:
        """Have other limits of the lane and of its zone count what waits."""
        waiting = self.waiting + self.aside
        for limit in self.limits:
            limit.held -= waiting
        self.limits = limits
        for limit in limits:
            limit.held += waiting

    def bind_senders(self, limit_of: Callable[[Recipient], Limit | None]) -> None:
        """Have other limits of the senders count what waits; no job stands aside."""
        for job in self.jobs:
            if job.limit is not None:
                job.limit.held -= len(job.recipients)
            job.limit = limit_of(job.recipients[0])
            if job.limit is not None:
                job.limit.held += len(job.recipients)

    def count(self, job: Job, recipients: int) -> None:
        """Adjust the count of waiting recipients of a job, and what else counts them."""
        self.waiting += recipients
        if job.few:
            self.few += recipients
        for limit in self.limits_of(job):
            limit.held += recipients

    def _put_first(self, job: Job) -> None:
        """A job that was taken, before the others of its priority."""
        self._age(job)
        self.jobs.put_first(job)

    def _age(self, job: Job) -> None:
        """A job comes: it may have come into the lane before those that wait."""
        self.since = min(self.since, job.since) if self.waiting else job.since

    def _take_last(self) -> Job:
        """The last job of the lowest priority, out of the queue now. Raises IndexError if there is none."""
        job = self.jobs.take_last()
        self._close(job)
        self.count(job, -len(job.recipients))
        return job

    def _close(self, job: Job) -> None:
        """Close a job to further recipients."""
        spid = job.envelope.spid
        if self._joinable.get(spid) is job:
            del self._joinable[spid]
