"""A worker: one connection of a lane, opened, used for job after job, kept a while, closed.

The job at hand is the worker's, with its claimed recipients, until `_let_go`; each ends in one of these ways:

| what happens | the recipients are | by |
|---|---|---|
| delivery is paused, or it goes another way than the connection's first job | put back | `_again` |
| a stop or a pause comes while it waits for a connection that shards share | put back | `_again` |
| they belong elsewhere by the settings or rules that stand now | placed anew | `placed_anew` |
| this machine could not open a connection | parked for SHORTAGE_MS | `_no_room` |
| no host takes mail for now, at CONNECT or GREETING; others of the lane work | put back | `_unreachable` |
| no host takes mail, and they bounce by its reply or a rule | settled; the lane hears nothing | the same |
| no host takes mail otherwise; others of the lane work | settled: deferred | the same |
| no host takes mail otherwise; none works | settled: deferred; the destination is suspended | the same |
| the attempt ends KEPT, OVER or BROKEN (see `attempt`) | settled there | |
| it ends STALE | put back | `_again` |
| it ends STORE | parked, due at once | `_no_store` |
| it ends CONTENT | parked for the first retry delay | `_no_content` |
| it is taken back, as it lasts too long | put back | `_abandon` |
| a stop cancels it before the final dot | parked, due at once | `_abandon` |
| a stop cancels it between final dot and reply | left: outcome unknown at the next start | `_abandon` |
| an internal error, which is logged and ends the connection | settled: deferred, 4.3.0 | `_own_fault` |
| the same behind the final dot | settled: deferred, 4.3.0, possibly delivered | `_own_fault` |

*Put back*: to the head of the lane. `states` has the states of a worker and which method changes them.

Settings read: deliver maxmessages, maxconntime, maxidletime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from mqcd.core.model import Phase
from mqcd.core.ports import QueueStore
from mqcd.core.queueing.spid import format_spid
from mqcd.core.smtp.reply import Reply
from mqcd.core.states import following
from mqcd.deliver.connection.attempt import End, transact
from mqcd.deliver.connection.connecting import Connector, NoHost
from mqcd.deliver.connection.link import Link, LinkView
from mqcd.deliver.connection.states import TABLE, Event, State
from mqcd.deliver.connection.timers import Sweep
from mqcd.deliver.lanes.jobs import Job
from mqcd.deliver.lanes.lane import Lane
from mqcd.deliver.lanes.scheduling import LaneTable
from mqcd.deliver.lanes.window import Feedback
from mqcd.deliver.recording import Recorder
from mqcd.deliver.settling import Settling
from mqcd.deliver.smtp.exchange import Result
from mqcd.deliver.terms import Terms
from mqcd.deliver.verdicts import CONNECTIONS_BREAK, failure, feedback_of

TOKEN_MS = 100
"""How often a connection that all shards share is asked for."""
SHORTAGE_MS = 10_000
"""Time that mail waits after this machine could not open a connection."""

Idle = dict[str, list["Worker"]]
"""By lane, the workers without a job."""

_log = logging.getLogger("mqcd.deliver")


# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_REST, _RESERVE, _HAND, _LEAVE = Event.REST, Event.RESERVE, Event.HAND, Event.LEAVE
_RESTING, _RESERVED = State.RESTING, State.RESERVED


@dataclass(slots=True, eq=False, repr=False)
class Worker:
    """A connection of `lane`, from its first job on; calls `changed` when it is gone, or without a job that
    others may have. `run` is its task's whole life."""

    _terms: Terms
    _table: LaneTable
    _store: QueueStore
    _recorder: Recorder
    _settling: Settling
    _connector: Connector
    _sweep: Sweep
    _placed_anew: Callable[[Job], bool]
    """Takes a job that belongs elsewhere by the settings or rules that stand now."""
    _changed: Callable[[], None]
    _idle: Idle
    lane: Lane
    _job: Job | None
    """The one at hand; None = none, or its recipients are handed on."""
    _turn: int
    """See `Connector.connect`."""
    _state: State = State.NEW
    _link: Link | None = None
    """Its connection, from OPENED on."""
    _offer: asyncio.Future[Job | None] | None = None
    """What it waits for while it has no job: the next one; None = it is to leave."""
    _token: int | None = None
    began: int = 0
    """When the attempt at hand began."""
    _worn_out: bool = False
    """Whether its present job, or the one that it is reserved for, is its last."""
    deadline: int = 0

    def __post_init__(self) -> None:
        self.began = self._terms.clock.monotonic()

    def _on(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        self._state = following(TABLE, self._state, event, "worker")

    @property
    def _possibly_delivered(self) -> bool:
        """Whether the final dot of the job at hand is out."""
        return self._link is not None and self._link.content_ended

    @property
    def at_work(self) -> tuple[Job, int] | None:
        """The job that is being tried, and since when; None without."""
        return None if self._job is None else (self._job, self.began)

    @property
    def host(self) -> str:
        """The host of its connection; "" = it has none yet."""
        return self._link.host if self._link is not None else ""

    @property
    def peer(self) -> tuple[str, ...]:
        """Address, host and destination of its connection; () = it has none yet."""
        link, name = self._link, self.lane.hop.destination.name
        return () if link is None else (link.address, link.host, name)

    @property
    def source(self) -> str:
        """The address that its connection comes from."""
        return self._link.source if self._link is not None else ""

    def tries(self, key: tuple[int, int]) -> bool:
        """Whether it tries a recipient at this moment."""
        return self._job is not None and any(each.key == key for each in self._job.recipients)

    @property
    def may_be_taken_back(self) -> bool:
        """Whether `recall` is legal, and its attempt can be cancelled without effect: no content was sent."""
        if self._job is None or Event.RECALL not in TABLE[self._state]:
            return False
        return self._link is None or not self._link.content_begun

    def view(self, now: int) -> LinkView:
        """What operators see of it; `now` is monotonic."""
        link, hop = self._link, self.lane.hop
        state = "working" if self._job is not None else "idle"
        return LinkView(
            session=link.session if link is not None else "",
            state=state if link is not None else "connecting",
            since_ms=now - (link.opened if link is not None else self.began),
            tls=link.tls if link is not None else "",
            messages=link.transactions if link is not None else 0,
            destination=hop.destination.name,
            zone=hop.policy.zone,
            remote_host=link.host if link is not None else "",
            remote_addr=link.address if link is not None else "",
            source_addr=link.source if link is not None else "",
        )

    # ------------------------------------------------------------ from outside

    def recall(self) -> None:
        """The caller cancels its task next: its job stays queued without a verdict."""
        self._on(Event.RECALL)

    def reserve(self) -> Worker:
        """Taken off the list of workers without a job, for one that may come."""
        self._on(_RESERVE)
        return self

    def hand(self, job: Job) -> bool:
        """Assign the job that it was reserved for; False when it has ended."""
        if (offer := self._offer_in(_RESERVED)) is None:
            return False
        self._on(_HAND)
        offer.set_result(job)
        return True

    def rest_again(self) -> None:
        """The job for which it was reserved does not come."""
        if (offer := self._offer_in(_RESERVED)) is None:
            return
        if self._terms.begins_nothing or self._worn_out or not self._table.keep(self.lane):
            self._dismiss(offer)
        else:
            self._rest()

    def wear(self) -> None:
        """Take no further job over this connection."""
        self._worn_out = True
        self.expire()

    def expire(self) -> None:
        """Close: it was without a job for too long, or others need the connection."""
        if (offer := self._offer_in(_RESTING)) is not None:
            self._idle[self.lane.name].remove(self)
            self._table.slots.left(self.lane)
            self._dismiss(offer)

    def _offer_in(self, state: State) -> asyncio.Future[Job | None] | None:
        """What it waits for in that state; None where it is in another, or a stop has cancelled it."""
        offer = self._offer
        return offer if self._state is state and offer is not None and not offer.done() else None

    def _dismiss(self, offer: asyncio.Future[Job | None]) -> None:
        self._on(_LEAVE)
        offer.set_result(None)

    async def run(self) -> None:
        """Work until the lane has no job for it, or the connection breaks."""
        self._on(Event.BEGIN)
        try:
            await self._work()
        except asyncio.CancelledError:
            self._abandon()
        except Exception:
            self._own_fault()
        finally:
            self._leave()

    # ------------------------------------------------------------ connection, job after job

    async def _work(self) -> None:
        job = self._job
        if job is None or not await self._connect(job):
            return
        hop = job.hop
        while (job := self._job) is not None and self._link is not None:
            halted = self._terms.halted
            if not halted and self._placed_anew(job):
                self._let_go(job)
                break
            if halted or (job.hop is not hop and not job.hop.fits(hop)):
                # Delivery was paused. Or the connection was opened for mail that goes another way: before
                # a reload, or for another site that has the lane's name.
                self._again(self._let_go(job))
                break
            self.began = self._terms.clock.monotonic()
            end = await self._transact(self._link, job)
            _AFTER[end](self, self._let_go(job))
            if end is not End.KEPT:
                break
            if self._recorder.crowded or self._recorder.paused:
                await self._recorder.room()
            self._job = await self._next_job()
        if self._link is not None:
            await self._link.quit()

    async def _connect(self, job: Job) -> bool:
        if not await self._take_token(job):
            self._again(self._let_go(job))
            return False
        started = self._terms.clock.monotonic()
        found = await self._connector.connect(job.hop, self._turn)
        if isinstance(found, Link):
            self._link = found
            self._on(Event.OPENED)
            self._table.opened(self.lane)
            return True
        self._unreachable(job, found, started)
        return False

    def _let_go(self, job: Job) -> Job:
        """The job at hand, for the part that has it next: a fault or a stop from here on does not hand it on
        again. Nothing that may fail comes between."""
        self._job = None
        return job

    async def _take_token(self, job: Job) -> bool:
        """Wait until the shards together have a connection less than they may; False at a stop or
        in a pause."""
        tokens, most = self._terms.tokens, job.hop.policy.shared
        while tokens is not None and most:
            self._token = tokens.take(self.lane.name, most)
            if self._token is not None:
                break
            if self._terms.begins_nothing:
                return False
            await self._terms.clock.sleep(TOKEN_MS)
        return True

    def _unreachable(self, job: Job, found: NoHost, started: int) -> None:
        """No host takes mail: this job was tried, other jobs of the lane were not.

        Where other connections work, the server has enough of them, and the job goes over those. Otherwise
        the destination is suspended, and probed in its own time, with this job's mail, too: that does not
        wait for its retry delay.
        """
        if found.shortage:
            self._no_room(job, found.reply)
            return
        now = self._terms.clock.monotonic()
        if self.lane.working and found.phase in (Phase.CONNECT, Phase.GREETING) and not found.reply.permanent:
            self._settling.give(self._table.failed(self.lane, now, found.reply))
            self._again(self._let_go(job))
            return
        took = now - started - found.attempt.connect_ms
        attempt = replace(found.attempt, attempt_ms=took, at=self._terms.clock.now())
        outcome = failure(found.reply, found.phase)
        outcome = self._settling.judge(outcome, job.hop, job.recipients[0].domain)
        if outcome.result is Result.BOUNCED:
            self._settling.settle_job(self._let_go(job), outcome, attempt)
            return
        give = self._table.failed(self.lane, now, found.reply)
        within = self.lane.comes_back(now)
        self._settling.settle_job(self._let_go(job), outcome, attempt, within)
        self._settling.give(give)

    def _no_room(self, job: Job, reply: Reply) -> None:
        """No host was asked: no verdict, no attempt, and no failure of the destination."""
        self._connector.log_shortage(reply)
        self._settling.park(self._let_go(job).recipients, SHORTAGE_MS)

    async def _next_job(self) -> Job | None:
        if self._terms.begins_nothing or self._link is None or self._worn(self._link):
            return None
        job = self._table.next_job(self.lane, self._terms.clock.monotonic())
        if job is not None or not self._terms.settings.maxidletime or not self._table.keep(self.lane):
            return job
        self._offer = asyncio.get_running_loop().create_future()
        self._rest()
        self._sweep.add(self)
        if self._table.slots.wanted:
            self._changed()
        try:
            return await self._offer
        finally:
            self._sweep.discard(self)

    def _rest(self) -> None:
        """Be on the list of workers without a job, for a time."""
        self._on(_REST)
        settings = self._terms.settings
        self._idle.setdefault(self.lane.name, []).append(self)
        self.deadline = self._terms.clock.monotonic() + settings.maxidletime
        if settings.maxconntime and self._link is not None:
            self.deadline = min(self.deadline, self._link.opened + settings.maxconntime)

    def _worn(self, link: Link) -> bool:
        settings = self._terms.settings
        old = 0 < settings.maxconntime <= self._terms.clock.monotonic() - link.opened
        return self._worn_out or old or 0 < settings.maxmessages <= link.transactions

    async def _transact(self, link: Link, job: Job) -> End:
        limit, clock = self._terms.settings.maxmessages, self._terms.clock
        last = 0 < limit <= link.transactions + 1
        return await transact(self._store, clock, self._settling, link, job, self.began, last=last)

    # ------------------------------------------------------------ after a transaction, see _AFTER

    def _went_through(self, job: Job) -> None:
        now = self._terms.clock.monotonic()
        feedback = Feedback.NEUTRAL if self._link is None else feedback_of(self._link.smtp.outcomes)
        self._table.went_through(self.lane, now, now - self.began, feedback)

    def _broke(self, job: Job) -> None:
        end = None if self._link is None else self._link.smtp.end
        now = self._terms.clock.monotonic()
        self._settling.give(self._table.broke(self.lane, now, end or CONNECTIONS_BREAK))

    def _again(self, job: Job) -> None:
        self._table.put_back(self.lane, job)

    def _no_store(self, job: Job) -> None:
        self._settling.park(job.recipients)

    def _no_content(self, job: Job) -> None:
        """No verdict: unreadable content does not concern the recipient, so it waits."""
        self._settling.park(job.recipients, self._terms.schedule.delays[0])

    # ------------------------------------------------------------ the end

    def _abandon(self) -> None:
        """Cancelled: recipients that may have got the message are left to the store's next start."""
        if self._job is None or self._possibly_delivered:
            return
        if self._state is State.RECALLED and not self._terms.stopping:
            self._table.took_back(self.lane, self._job)
        else:
            self._settling.park(self._job.recipients)

    def _own_fault(self) -> None:
        job = None if self._job is None else self._let_go(self._job)
        about = {
            "session": None if self._link is None else self._link.session,
            "spid": None if job is None else format_spid(job.envelope.spid),
        }
        _log.exception("internal error in delivery to %s", self.lane.name, extra=about)
        if job is not None:
            self._settling.own_fault(job, self._possibly_delivered)

    def _leave(self) -> None:
        self._on(_LEAVE)
        if self._link is not None:
            self._link.close()
            self._sweep.discard(self._link)
        if self._token is not None and self._terms.tokens is not None:
            self._terms.tokens.give(self._token)
        if not self._idle.get(self.lane.name, True):
            del self._idle[self.lane.name]
        self._table.closed(self.lane, self._terms.clock.monotonic(), working=self._link is not None)
        self._changed()


_AFTER: dict[End, Callable[[Worker, Job], None]] = {
    End.KEPT: Worker._went_through,
    End.OVER: Worker._went_through,
    End.BROKEN: Worker._broke,
    End.STALE: Worker._again,
    End.STORE: Worker._no_store,
    End.CONTENT: Worker._no_content,
}
