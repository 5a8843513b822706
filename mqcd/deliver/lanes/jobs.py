"""The jobs of one lane in the order of `ranks`, and how many recipients they have. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mqcd.core.model import Recipient
from mqcd.deliver.lanes.ranks import Ranks
from mqcd.deliver.lanes.rates import Limit
from mqcd.deliver.lanes.tenants import TurnOrder
from mqcd.deliver.routing.policy import Hop


@dataclass(slots=True, eq=False)
class Job:
    """Recipients of one message that travel together."""

    hop: Hop
    recipients: list[Recipient]
    since: int
    """When it came into its lane."""
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
    content: bytes | None = None
    """Its message's octets, where the store had them at hand."""

    @property
    def priority(self) -> int:
        """Its message's."""
        return self.recipients[0].envelope.priority


@dataclass(slots=True, eq=False)
class JobQueue:
    """The waiting jobs of a lane. Each limit on a job counts its recipients while they wait: `Limit.held` is
    changed here alone."""

    jobs: Ranks[Job] = field(default_factory=Ranks)
    waiting: int = 0
    """Recipients in `jobs`."""
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
        """Add a recipient to the job of its message, if one waits that has room and the same policy."""
        job = self._joinable.get(recipient.envelope.spid)
        # One policy and one site make one transaction, also for several domains.
        if job is None or job.hop.policy is not hop.policy:
            return False
        job.recipients.append(recipient)
        self.count(job, 1)
        if len(job.recipients) >= most:
            self._close(job)
        return True

    def append(self, job: Job, *, joinable: bool) -> None:
        """A new job, in its turn among the others of its priority."""
        self.jobs.append(job)
        if joinable:
            self._joinable[job.recipients[0].envelope.spid] = job
        self.count(job, len(job.recipients))

    def put_back(self, job: Job) -> None:
        """A job that was started and not tried, before the others of its priority."""
        self.jobs.put_back(job)
        self.count(job, len(job.recipients))

    def take(self) -> Job:
        """The first job, out of the queue now."""
        job = self.jobs.take()
        self.turns.served(job.order[0])
        if self._joinable:
            self._close(job)
        self.count(job, -len(job.recipients))
        return job

    def split_first(self, size: int) -> None:
        """Make the first `size` recipients of the first job a job of their own."""
        job = self.jobs.first
        if len(job.recipients) > size:
            part, order = job.recipients[:size], job.order
            first = Job(job.hop, part, job.since, order=order, limit=job.limit, few=job.few)
            job.recipients = job.recipients[size:]
            self.jobs.put_back(first)

    def step_aside(self) -> Job:
        """The first job, out of the queue until it comes back; its limits still count it."""
        job = self.jobs.take()
        self._close(job)
        self.waiting -= len(job.recipients)
        self.aside += len(job.recipients)
        return job

    def come_back(self, job: Job) -> None:
        """Put a job that was set apart back, before the others of its priority."""
        self.aside -= len(job.recipients)
        self.waiting += len(job.recipients)
        self.jobs.put_back(job)

    def cut(self, keep: int) -> list[Recipient]:
        """Take the jobs that would go last while there are more than `keep` recipients."""
        cut: list[Job] = []
        while self.jobs and self.waiting > keep:
            job = self.jobs.take_last()
            self._drop(job)
            self.turns.give_back(job.recipients[0].envelope.tenant)
            cut.append(job)
        return [recipient for job in reversed(cut) for recipient in job.recipients]

    def keep_one(self) -> list[Recipient]:
        """Take everything out but the first recipient."""
        if not self.jobs:
            return []
        later = self.cut(len(self.jobs.first.recipients))
        first = self.jobs.take_last()
        self._drop(first)
        one = Job(first.hop, first.recipients[:1], first.since, order=first.order, limit=first.limit)
        self.append(one, joinable=False)
        return first.recipients[1:] + later

    def cull(self, over: Callable[[Recipient], bool], *, spare_first: bool) -> list[Recipient]:
        """Take out the recipients that are `over`; with `spare_first` the first job stays as it is."""
        gone: list[Recipient] = []
        for job in tuple(self.jobs)[spare_first:]:
            culled = [each for each in job.recipients if over(each)]
            if not culled:
                continue
            gone += culled
            self.count(job, -len(culled))
            if len(culled) == len(job.recipients):
                self._close(job)
                self.jobs.remove(job)
                self.turns.give_back(job.recipients[0].envelope.tenant)
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
        """Adjust the count of waiting recipients of a job."""
        self.waiting += recipients
        if job.few:
            self.few += recipients
        if self.limits:
            for limit in self.limits:
                limit.held += recipients
        if job.limit is not None:
            job.limit.held += recipients

    def _drop(self, job: Job) -> None:
        """A job is out of `jobs`."""
        self._close(job)
        self.count(job, -len(job.recipients))

    def _close(self, job: Job) -> None:
        """Close a job to further recipients."""
        spid = job.recipients[0].envelope.spid
        if self._joinable.get(spid) is job:
            del self._joinable[spid]
