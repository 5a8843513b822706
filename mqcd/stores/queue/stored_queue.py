"""`core.ports.QueueStore` over documents: the queue of every store but the clustered-file one.

What lasts from `open` to `close` is a `Run`; it goes as `close` begins. Without one the queue is not open.

What is due, claimed and counted is kept in memory, about a kilobyte for each recipient, in the states of the
tables in `state`: what each end of a `begin`, `settle` or `park` leaves of its recipients is there. `backend`
keeps the documents. The promises are the port's, as far as the backend's own go (`Promises`).

Of a shared store it shows and delivers what belongs to this node; `taking` says how that changes. When this
node's lease is lost, what it has in flight is outcome-unknown for the node that takes it.

Until it is `loaded`, claims give nothing; `pick`, `moment`, `content`, `admit` and `release` raise
StoreUnavailable; `scan` and the other looks answer by what has been read so far; mail without an idempotency
key is taken, mail with one waits. Where the store fails before that, the start has failed, as where `open`
raises: `recovered` says so, and it stays as it is until it is closed.

Failures: StoreUnavailable while it is not open, and for what the backend cannot write; ValueError for a fault
of the calling program: settling, parking or beginning what is not claimed, a SPID used twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.model import Area, AreaStats, Batch, Recipient, Settlement, Submission
from mqcd.core.ports import Clock, Content, FindConnection, Observer, Picked, Reservation
from mqcd.core.queueing.amendment import applies
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.transition import parked
from mqcd.core.queueing.turns import Places
from mqcd.core.selecting.parts import Listed, measured, part_of
from mqcd.core.selecting.selection import Selection
from mqcd.core.units import DAY
from mqcd.disk.durable import Disk
from mqcd.eventlog.history import History, history
from mqcd.eventlog.retention import Retention
from mqcd.queue.format.record import encode
from mqcd.queue.keys.turns import Turn, once
from mqcd.stores.backend import Backend, Promises, failed
from mqcd.stores.queue.edits import LOST, Edit
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.exporting import EventFiles, Exporter
from mqcd.stores.queue.figures import Figures
from mqcd.stores.queue.moment import IN_FLIGHT, WAITS, Moment
from mqcd.stores.queue.moving import admit, release
from mqcd.stores.queue.recording import (
    Arrival,
    Move,
    arrive,
    arrived,
    check_arrival,
    hand_over,
    moves,
    record,
    settle_streamed,
)
from mqcd.stores.queue.run import Run
from mqcd.stores.queue.state import State, Surroundings
from mqcd.stores.queue.waiting import Waiting

PICKED_AT_ONCE = 250
"""Messages that one part of a pick looks at."""
_ALL = 1 << 62
"""A limit that no queue reaches."""

log = logging.getLogger(__name__)


class StoredQueue:
    """One queue."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        observer: Observer,
        schedule: RetrySchedule,
        events: EventFiles | None = None,
        disk: Disk | None = None,
        key_age: int = DAY,
    ) -> None:
        """`events`: where the event log goes; None = there is none. `disk` is what it is written through.
        `key_age`: how long idempotency keys are remembered, ms."""
        self._key_age = key_age
        self._events = events
        self._disk = disk or Disk()
        source = events.source if events is not None else None
        self._around = Surroundings(backend, clock, observer, source)
        self._schedule = schedule
        self._run: Run | None = None
        """From the end of `open` to the begin of `close`."""
        self._turn = asyncio.Lock()
        """Of `open` and `close`: one at a time, in the order of the calls."""
        self._closing: asyncio.Task[None] | None = None
        self._find: FindConnection | None = None

    @property
    def promises(self) -> Promises:
        """The store's own. What a server of its own is set to is known once it is open."""
        return self._around.backend.promises

    @property
    def _opened(self) -> Run:
        if self._run is None:
            raise StoreUnavailable("the queue is not open")
        return self._run

    @property
    def _live(self) -> State:
        return self._opened.state

    @property
    def _loaded(self) -> State:
        if not self._live.loaded:
            raise StoreUnavailable("the queue is still being read")
        return self._live

    # ------------------------------------------------------------ open and close

    async def open(self) -> None:
        """Take mail; what the last run left is read meanwhile, see `recovered`. Raises StoreBusy."""
        async with self._turn:
            if self._run is None:
                self._run = await self._begin()
                # Other settings may have come meanwhile.
                self._set(self._run)

    async def _begin(self) -> Run:
        marks = await self._around.backend.open()
        try:
            state = State(self._around, self._schedule, marks, self._key_age)
            state.look_at_clock()
            return Run(state, await self._start_exporter(state))
        except BaseException:
            await self._around.backend.close()
            raise

    async def _start_exporter(self, state: State) -> Exporter | None:
        if self._events is None:
            return None
        exporter = Exporter(
            state.documents, self._events, self._around.clock, self._disk, state.look_at_clock
        )
        await exporter.start()
        return exporter

    async def recovered(self) -> None:
        """Return when what the last run left may be claimed. Raises StoreUnavailable, also where it is closed
        before that, and StoreDamaged."""
        await self._opened.recovered()

    async def close(self) -> None:
        """End what is being written, and release the store. It waits for an `open` or `close` under way; then
        it goes on where its caller is cancelled."""
        await self._turn.acquire()
        run, self._run = self._run, None
        self._closing = asyncio.ensure_future(self._close(run))
        self._closing.add_done_callback(lambda _: self._turn.release())
        await asyncio.shield(self._closing)

    async def _close(self, run: Run | None) -> None:
        if run is not None:
            try:
                await run.close()
            finally:
                await self._around.backend.close()

    def refusing(self) -> str:
        """Why no mail is taken now; "" when it is."""
        return self._run.state.documents.full if self._run is not None else "the queue is not open"

    def stalled(self) -> str:
        """Why no verdict can be recorded now; "" when they can be."""
        return ""

    def reload(self, schedule: RetrySchedule, retention: Retention | None = None) -> None:
        """Go by another schedule from now on, and keep event files for another time."""
        if retention is not None and self._events is not None:
            self._events = replace(self._events, retention=retention)
        self._schedule = schedule
        if self._run is not None:
            self._set(self._run)

    def _set(self, run: Run) -> None:
        run.state.schedule = self._schedule
        if run.exporter is not None and self._events is not None:
            run.exporter.files = self._events

    # ------------------------------------------------------------ mail in

    def reserve(self, several: bool) -> int:
        """A SPID; see the port."""
        state = self._live
        state.look_at_clock()
        spid = state.spids.next(state.believed(), several)
        state.reserved.add(spid)
        return spid

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Take a message. Raises StoreUnavailable, ValueError, and what its content raises."""
        state = self._live
        if submission.key is None:
            return await self._take(submission, None)
        # It raises where the queue is closed meanwhile: so what has been read is in this `state`.
        await self.recovered()
        return await once(submission, await state.keys.turn(submission.key), self._take)

    async def _take(self, submission: Submission, turn: Turn | None) -> Sequence[Recipient]:
        arrival = await arrive(self._live, submission, turn)
        # Asked again: it raises where the queue was closed meanwhile, and nothing may be written.
        state = self._live
        reserved = self._reserve_connection(state, arrival)
        await (record(state, [], [arrival]) if reserved is None else hand_over(state, arrival, reserved))
        return arrival.recipients

    async def admit(self, recipients: Sequence[Recipient], content: AsyncIterator[bytes]) -> None:
        """Take a message of another store as it is. Raises StoreUnavailable, what its content raises."""
        await admit(self._loaded, recipients, content)

    def release(self, recipients: Sequence[Recipient], reason: str) -> Awaitable[None]:
        """Let recipients that wait leave the queue: another store has them."""
        return release(self._loaded, recipients, reason)

    def _reserve_connection(self, state: State, arrival: Arrival) -> Reservation | None:
        """A connection for a message that may be tried at once: older new mail goes first."""
        if (
            self._find is None
            or arrival.recipients[0].due
            or arrival.recipients[0].area is Area.HELD
            or state.clock_watch.in_doubt
            or state.waiting.has_new
            or not state.loaded
        ):
            return None
        reserved = self._find(arrival.recipients)
        if reserved is not None and not reserved.begins:
            # Here a claim costs next to nothing beside a write.
            reserved.release()
            return None
        return reserved

    def hand_over(self, find: FindConnection) -> None:
        """Ask `find` for a connection for new messages."""
        self._find = find

    # ------------------------------------------------------------ claims

    async def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int] | None = None,
        overdue: Callable[[Recipient], bool] | None = None,
        received_by: int | None = None,
        places: Places | None = None,
    ) -> Sequence[Recipient]:
        """At most `room` due recipients; see the port."""
        self._live.look_at_clock()
        return self._claimed(lambda each: each.claim(room, now, skip or {}, overdue, received_by, places))

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        """At most `room` bounces, the longest waiting first."""
        return self._claimed(lambda waiting: waiting.claim_bounces(room))

    async def claim_removed(self, room: int) -> Sequence[Recipient]:
        """At most `room` removals whose grace is over."""
        return self._claimed(lambda waiting: waiting.claim_removed(room, self._around.clock.now()))

    async def claim_held(self, domain: str, room: int) -> Sequence[Recipient]:
        """At most `room` recipients that rest for a domain."""
        return self._claimed(lambda waiting: waiting.claim_held(domain, room))

    def _claimed(self, take: Callable[[Waiting], Sequence[Recipient]]) -> Sequence[Recipient]:
        state = self._live
        found = take(state.waiting) if state.loaded else ()
        state.claimed.update(each.key for each in found)
        return found

    def held_domains(self) -> Collection[str]:
        """The domains for which some rest."""
        return self._live.waiting.held_domains()

    async def pick(self, selection: Selection, batch: Batch) -> AsyncGenerator[Picked, None]:
        """All recipients that a batch applies to."""
        state = self._loaded
        left = selection.limit if selection.limit is not None else _ALL
        spids = sorted(state.documents.messages)
        for start in range(0, len(spids), PICKED_AT_ONCE):
            messages = [state.documents.messages.get(spid) for spid in spids[start : start + PICKED_AT_ONCE]]
            records = [each for held in messages if held is not None for each in held.records.values()]
            wanted = [each for each in records if selection.matches(each) and applies(each, batch)]
            if wanted and left:
                busy = [each.key for each in wanted if self.in_flight(each)]
                found = state.waiting.pick(wanted, left)
                left -= len(found)
                state.claimed.update(each.key for each in found)
                yield Picked(recipients=found, in_flight=busy)
            await asyncio.sleep(0)

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        """Note that an attempt starts.

        No coroutine, nor are `settle` and `park`: they check, mark and order the write when they are called,
        not when the result is awaited, so that no other call comes in between. With messages whose content is
        yet to be read `settle` only checks then: it marks and orders the write when they are staged.
        """
        state = self._live
        if len(state.kept(recipients)) < len(recipients):
            return failed(StoreUnavailable(LOST))
        records = state.claimed_records(recipients)

        def end(durable: bool) -> None:
            if durable:
                self._around.observer.attempted(self._around.clock.now(), records, destination)

        events: Sequence[Line] = ()
        if state.lines is not None:
            events = state.lines.attempted(self._around.clock.now(), records, destination)
        return state.documents.edit(Edit(puts=records, begun=True, events=events, ended=end))

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        """Record verdicts, and take the messages that they give rise to."""
        state = self._live
        claims = [each.recipient for each in settlements]
        made = moves(state, settlements)
        if settlements and not made:
            state.end_claims(claims)
            return asyncio.sleep(0)
        whole = [(each, each.content) for each in submissions if isinstance(each.content, bytes)]
        if len(whole) == len(submissions):
            arrivals = [arrived(state, each, octets, len(octets)) for each, octets in whole]
            return record(state, made, arrivals, claims)
        for submission in submissions:
            check_arrival(state, submission)
        return state.in_background(settle_streamed(state, settlements, submissions, claims))

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        """Give claimed recipients back untried; an attempt that had begun is taken back."""
        state = self._live
        until = min(until, state.latest_due())
        records = state.claimed_records(state.kept(recipients))
        return record(state, [Move(each, parked(each, until), None) for each in records], [], recipients)

    # ------------------------------------------------------------ looks

    async def content(self, recipient: Recipient) -> Content:
        """The message's octets. Raises ContentUnavailable."""
        if recipient.spid not in self._loaded.documents.messages:
            raise ContentUnavailable(f"no content of message {format_spid(recipient.spid)}: not in the queue")
        content = await self._around.backend.content(recipient.spid)
        if content.size != recipient.size:
            content.close()
            text = f"content of message {format_spid(recipient.spid)}: "
            raise ContentUnavailable(f"{text}{content.size} octets, not {recipient.size}")
        return content

    def scan(self, selection: Selection) -> AsyncIterator[Recipient]:
        """The recipients that match at the moment of this call, by message and number."""
        messages = self._live.documents.messages
        records = (messages[spid].records for spid in sorted(messages))
        found = [each for held in records for _, each in sorted(held.items()) if selection.matches(each)]
        return _stream(found[: selection.limit])

    async def browse(self, selection: Selection, after: str = "", by_age: bool = False) -> Listed:
        """A part of a list, in the order of age or of the messages."""
        held = (message.records.values() for message in self._live.documents.messages.values())
        return part_of(chain.from_iterable(held), selection, after, by_age)

    async def measure(self, selection: Selection) -> AreaStats:
        """How much is selected."""
        return measured([each async for each in self.scan(selection)])

    async def lane_keys(self, selection: Selection) -> Collection[str]:
        """Theirs."""
        return {each.lane_key async for each in self.scan(selection)}

    def in_flight(self, recipient: Recipient) -> bool:
        """Whether it is claimed at this moment."""
        state, key = self._live, recipient.key
        return key in state.claimed or key in state.ending or key in state.lost

    def moment(self) -> Moment:
        """All that this server has in the queue, and the events that are in no file. O(recipients)."""
        state = self._loaded
        records = [
            (IN_FLIGHT if self.in_flight(each) else WAITS) + encode(each)
            for _, message in sorted(state.documents.messages.items())
            for _, each in sorted(message.records.items())
        ]
        exporter = self._opened.exporter
        newest, events = exporter.state() if exporter is not None else (0, ())
        return Moment(records=records, newest=newest, events=events, shared=self.promises.shared)

    async def history(self, spid: int) -> History:
        """What happened to a message, as far as events are kept. Raises OSError."""
        if self._events is None:
            return History(events=())
        # What is exported meanwhile is in both, and comes once.
        return await asyncio.to_thread(history, Disk(), self._events.directory, spid, self.unfiled(spid))

    async def changed_by(self, batch: str, since: int) -> int:
        """How many recipients a batch has changed, by the event log; 0 without one. Raises OSError."""
        exporter = self._opened.exporter
        return await exporter.changed_by(batch, since) if exporter is not None else 0

    def unfiled(self, spid: int) -> Sequence[bytes]:
        """The events of a message that are in no event file, perhaps others."""
        return [line for (each, _), line in self._live.documents.unexported.items() if each == spid]

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds; nothing while it is not open."""
        return (self._run.state.figures if self._run is not None else Figures()).stats()

    def next_due(self) -> int | None:
        """When the next unclaimed recipient can be claimed, ms; skipped recipients count from the end of
        their skip time."""
        self._live.look_at_clock()
        return self._live.waiting.next_due()

    def may_expire(self) -> bool:
        """Whether the wall clock can be believed."""
        return self._run is None or self._run.state.look_at_clock()

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever something may have become claimable."""
        self._around.watchers.append(callback)


async def _stream(records: Sequence[Recipient]) -> AsyncIterator[Recipient]:
    for each in records:
        yield each
