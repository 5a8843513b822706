"""A queue that lives in memory: the fake that tests build on, held to the contract of the real one.

It keeps every promise of `core.ports.QueueStore` but one: nothing outlives the process. Closing and
opening the same object again is a restart: claimed recipients become claimable, and those whose attempt
had begun count as outcome-unknown. A transition is committed, and its observer called, before the
method that makes it returns; only content that arrives in chunks makes it wait.

Failures: StoreUnavailable while it is closed, and when `max_octets` of content would be exceeded.
ValueError for what is a fault of the calling program: settling, parking or beginning what is not
claimed, a SPID used twice, a SPID whose last bit contradicts the number of recipients.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace

from mqcd.core.clockwatch import ClockWatch
from mqcd.core.content import MemoryContent
from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.model import (
    Area,
    AreaStats,
    Bounced,
    Deferred,
    Delivered,
    Discarded,
    Expired,
    Recipient,
    Reported,
    Settlement,
    Submission,
)
from mqcd.core.ports import Clock, Expedited, FindConnection, Observer
from mqcd.core.schedule import RetrySchedule
from mqcd.core.selection import Selection
from mqcd.core.spid import Reserved, SpidSource, accepted_by, format_spid, is_several
from mqcd.core.transition import after, not_later, parked, unknown

_HOUR = 3_600_000
_SCHEDULE = RetrySchedule(
    delays=(_HOUR // 4, _HOUR // 2, 2 * _HOUR, 4 * _HOUR), maxtime=72 * _HOUR, maxtime_reports=24 * _HOUR
)


Key = tuple[int, int]


@dataclass(slots=True)
class _Message:
    """Octets of a message and how many of its recipients are unfinished."""

    octets: bytes
    unfinished: int


class MemoryStore:
    """`core.ports.QueueStore` in memory. `max_octets` bounds the content it holds; 0 = no bound."""

    def __init__(
        self,
        clock: Clock,
        observer: Observer,
        *,
        schedule: RetrySchedule = _SCHEDULE,
        max_octets: int = 0,
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._schedule = schedule
        self._max_octets = max_octets
        self._octets = 0
        self._watch = ClockWatch(0, clock.now(), clock.monotonic())
        self._spids = SpidSource(0, 0)
        self._reserved = Reserved()
        self._open = False
        self._records: dict[Key, Recipient] = {}
        self._messages: dict[int, _Message] = {}
        self._claimed: set[Key] = set()
        self._begun: set[Key] = set()
        # An unclaimed recipient stands in exactly one of these, so none of them ever goes stale.
        self._new: list[Key] = []
        self._due: list[tuple[int, Key]] = []
        self._bounces: dict[Key, None] = {}
        self._new_turn = True
        self._watchers: list[Callable[[], None]] = []
        self._find: FindConnection | None = None
        self._streaming: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Serve. What the last run left claimed is given back; what it had begun is outcome-unknown."""
        if self._open:
            return
        self._open = True
        now = self._clock.now()
        for key in sorted(self._begun):
            record = self._records[key]
            self._records[record.key] = unknown(record, self._schedule, now)
            self._observer.outcome_unknown(now, record)
        self._claimed.clear()
        self._begun.clear()
        # All are queued again: which ones the last run passed over is forgotten.
        self._new, self._due, self._bounces = [], [], {}
        for key in self._records:
            self._offer(key)
        self._bring_forward()

    async def recovered(self) -> None:
        """Returns at once: nothing has to be recovered."""
        self._check_open()

    async def close(self) -> None:
        """Stop serving; the queue stays for the next `open` of this object."""
        self._open = False

    def reserve(self, several: bool) -> int:
        """A SPID for a message with several recipients or one; one that is not used never appears."""
        self.may_expire()
        spid = self._spids.next(self._believed(), several)
        self._reserved.add(spid)
        return spid

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Take a message. Raises StoreUnavailable, ValueError, and what its content raises."""
        self._check_open()
        check_submission(submission)
        octets = await gather(submission.content)
        self._check_room([(submission, octets)])
        older = bool(self._new)
        records = self._accept(submission, octets)
        reserved = None if self._find is None or older or self._watch.in_doubt else self._find(records)
        if reserved is not None:
            self._new.clear()
            self._claimed.update(record.key for record in records)
            await self.begin(records, reserved.destination)
            reserved.use(octets)
        else:
            self._notify()
        return records

    async def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int] | None = None,
        overdue: Callable[[Recipient], bool] | None = None,
        received_by: int | None = None,
    ) -> Sequence[Recipient]:
        """At most `room` due recipients, new and due ones in turn; skipped ones rest until their time."""
        self._check_open()
        self.may_expire()
        skip = skip or {}
        found: list[Recipient] = []
        while len(found) < room:
            key = self._next(now)
            if key is None:
                break
            record = self._records[key]
            until = skip.get(record.domain, 0)
            old = received_by is None or accepted_by(record.spid, record.envelope.received) <= received_by
            if until > now and not (old and overdue and overdue(record)):
                heapq.heappush(self._due, (until, key))
                continue
            self._claimed.add(key)
            found.append(record)
            self._new_turn = not self._new_turn
        return found

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        """At most `room` bounces, the longest waiting first."""
        self._check_open()
        keys = [key for key, _ in zip(self._bounces, range(room), strict=False)]
        for key in keys:
            del self._bounces[key]
            self._claimed.add(key)
        return [self._records[key] for key in keys]

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        """Note that an attempt starts."""
        self._check_open()
        records = self._claimed_records(recipients)
        self._begun.update(record.key for record in records)
        self._observer.attempted(self._clock.now(), records, destination)
        return _done()

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        """Record verdicts and take the messages that they give rise to: all of it or nothing."""
        self._check_open()
        records = self._claimed_records([settlement.recipient for settlement in settlements])
        for record, settlement in zip(records, settlements, strict=True):
            after(record, settlement.verdict)
        for submission in submissions:
            check_submission(submission)
        whole = [(each, each.content) for each in submissions if isinstance(each.content, bytes)]
        if len(whole) < len(submissions):
            return self._in_background(self._settle_streamed(settlements, submissions))
        self._commit(settlements, whole)
        return _done()

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        """Give claimed recipients back untried; an attempt that had begun is taken back."""
        self._check_open()
        until = min(until, self._latest_due())
        for record in self._claimed_records(recipients):
            self._release(record.key)
            self._records[record.key] = parked(record, until)
            self._offer(record.key)
        self._notify()
        return _done()

    async def expedite(self, selection: Selection, dry_run: bool = False) -> Expedited:
        """Make mail that waits due now."""
        self._check_open()
        now = self._clock.now()
        waiting = (self._records[key] for key in (*self._new, *(key for _, key in self._due)))
        found = [each for each in waiting if selection.matches(each)][: selection.limit]
        keys = {each.key for each in found}
        later = {key for due, key in self._due if due > now and key in keys}
        if not dry_run:
            self._due = sorted((now if key in later else due, key) for due, key in self._due)
            self._notify()
        domains = frozenset(each.domain for each in found)
        return Expedited(matched=len(found), changed=len(later), domains=domains)

    async def content(self, recipient: Recipient) -> MemoryContent:
        """The message's octets. StoreUnavailable when the queue does not hold the message (any more)."""
        self._check_open()
        message = self._messages.get(recipient.spid)
        if message is None:
            raise ContentUnavailable(f"no content of message {format_spid(recipient.spid)}: not in the queue")
        return MemoryContent(message.octets)

    def scan(self, selection: Selection) -> AsyncIterator[Recipient]:
        """The recipients that match at the moment of this call, in the order of their names."""
        found = [self._records[key] for key in sorted(self._records)]
        return _stream([record for record in found if selection.matches(record)][: selection.limit])

    def in_flight(self, recipient: Recipient) -> bool:
        """Whether it is claimed at this moment."""
        return recipient.key in self._claimed

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds."""
        held: dict[Area, list[Recipient]] = {area: [] for area in Area}
        for record in self._records.values():
            held[record.area].append(record)
        return {
            area: AreaStats(
                recipients=len(records),
                octets=sum(each.size for each in records),
                oldest=min((each.envelope.received for each in records), default=None),
            )
            for area, records in held.items()
        }

    def next_due(self) -> int | None:
        """When the next unclaimed recipient can be claimed, ms; those passed over count from then."""
        self.may_expire()
        if self._new:
            return 0
        return self._due[0][0] if self._due else None

    def may_expire(self) -> bool:
        """Whether the wall clock can be believed."""
        if self._watch.look(self._clock.now(), self._clock.monotonic()) is not None:
            self._bring_forward()
        return not self._watch.in_doubt

    def hand_over(self, find: FindConnection) -> None:
        """Ask `find` for a connection for new messages."""
        self._find = find

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever something may have become claimable."""
        self._watchers.append(callback)

    # ------------------------------------------------------------ claims

    def _next(self, now: int) -> Key | None:
        """Remove and return the next due recipient; None when nothing is due."""
        due = bool(self._due) and self._due[0][0] <= now
        if self._new and (self._new_turn or not due):
            return heapq.heappop(self._new)
        return heapq.heappop(self._due)[1] if due else None

    def _offer(self, key: Key) -> None:
        """Queue an unclaimed recipient by its record."""
        record = self._records[key]
        if record.area is Area.BOUNCES:
            self._bounces[key] = None
        elif record.area is Area.INCOMING and not record.due:
            heapq.heappush(self._new, key)
        else:
            heapq.heappush(self._due, (record.due, key))

    def _bring_forward(self) -> None:
        """The clock may have been ahead when due times were set: none is too far ahead of it now."""
        latest = self._latest_due()
        self._due = sorted((min(due, latest), key) for due, key in self._due)
        self._notify()

    def _latest_due(self) -> int:
        return self._clock.now() + self._schedule.longest

    def _believed(self) -> int:
        return self._watch.believes(self._clock.now(), self._clock.monotonic())

    def _claimed_records(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """The records as the queue holds them, each claimed and named once; else ValueError."""
        keys = [recipient.key for recipient in recipients]
        for key in keys:
            if key not in self._claimed:
                raise ValueError(f"recipient {format_spid(key[0])}-{key[1]} is not claimed")
        if len(set(keys)) < len(keys):
            raise ValueError("a recipient is named twice in one call")
        return [self._records[key] for key in keys]

    def _release(self, key: Key) -> None:
        self._claimed.discard(key)
        self._begun.discard(key)

    # ------------------------------------------------------------ transitions

    async def _settle_streamed(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission]
    ) -> None:
        gathered = [(submission, await gather(submission.content)) for submission in submissions]
        self._claimed_records([settlement.recipient for settlement in settlements])
        self._commit(settlements, gathered)

    def _commit(
        self, settlements: Sequence[Settlement], submissions: Sequence[tuple[Submission, bytes]]
    ) -> None:
        self._check_room(submissions)
        for submission, octets in submissions:
            self._accept(submission, octets)
        now, latest = self._clock.now(), self._latest_due()
        for given in settlements:
            settlement = replace(given, verdict=not_later(given.verdict, latest))
            record = self._records[settlement.recipient.key]
            self._release(record.key)
            self._replace(record, after(record, settlement.verdict))
            self._report(now, record, settlement)
        self._notify()

    def _replace(self, old: Recipient, new: Recipient | None) -> None:
        if new is not None:
            self._records[new.key] = new
            self._offer(new.key)
            return
        del self._records[old.key]
        message = self._messages[old.spid]
        message.unfinished -= 1
        if not message.unfinished:
            del self._messages[old.spid]
            self._octets -= len(message.octets)

    def _report(self, now: int, record: Recipient, settlement: Settlement) -> None:
        """Notify the observer; the record is the one that was attempted, not the one that it became."""
        match settlement.verdict:
            case Delivered() as verdict:
                self._observer.delivered(now, record, verdict)
            case Deferred() as verdict:
                self._observer.deferred(now, record, verdict)
            case Bounced() as verdict:
                self._observer.bounced(now, record, verdict)
            case Expired() as verdict:
                self._observer.expired(now, record, verdict)
            case Reported(report_spid=spid):
                self._observer.reported(now, record, spid)
            case Discarded(reason=reason):
                self._observer.discarded(now, record, reason)

    def _accept(self, submission: Submission, octets: bytes) -> Sequence[Recipient]:
        envelope = submission.envelope
        if self._watch.in_doubt:
            envelope = replace(envelope, received=max(envelope.received, self._believed()))
        dsns = submission.recipient_dsn or [""] * len(submission.recipients)
        records = [
            Recipient(envelope=envelope, size=len(octets), qid=qid, address=address, dsn=dsn)
            for qid, (address, dsn) in enumerate(zip(submission.recipients, dsns, strict=True), 1)
        ]
        self._reserved.used(envelope.spid)
        self._messages[envelope.spid] = _Message(octets, len(records))
        self._octets += len(octets)
        for record in records:
            self._records[record.key] = record
            self._offer(record.key)
        self._observer.accepted(self._clock.now(), records)
        return records

    # ------------------------------------------------------------ the rest

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the memory store is closed")

    def _check_room(self, submissions: Sequence[tuple[Submission, bytes]]) -> None:
        """Refuse before anything changes, so that nothing is half accepted."""
        self._check_open()
        self._reserved.check([submission.envelope.spid for submission, _ in submissions])
        wanted = sum(len(octets) for _, octets in submissions)
        if self._max_octets and self._octets + wanted > self._max_octets:
            raise StoreUnavailable(f"the memory store holds its {self._max_octets} octets; try later")

    def _notify(self) -> None:
        for callback in self._watchers:
            callback()

    def _in_background(self, work: Coroutine[None, None, None]) -> Awaitable[None]:
        """A task that runs even before it is awaited, as every other change does."""
        task = asyncio.get_running_loop().create_task(work)
        self._streaming.add(task)
        task.add_done_callback(self._streaming.discard)
        return task


async def _stream(records: Sequence[Recipient]) -> AsyncIterator[Recipient]:
    for record in records:
        yield record


def _done() -> Awaitable[None]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


def check_submission(submission: Submission) -> None:
    """Raises ValueError for one that contradicts itself or its SPID."""
    count = len(submission.recipients)
    if not count:
        raise ValueError("a message needs a recipient")
    if submission.recipient_dsn and len(submission.recipient_dsn) != count:
        raise ValueError("a message has other numbers of recipients and of their DSN parameters")
    if is_several(submission.envelope.spid) is not (count > 1):
        spid = format_spid(submission.envelope.spid)
        raise ValueError(f"SPID {spid} was reserved for another number of recipients than {count}")


async def gather(content: bytes | AsyncIterator[bytes]) -> bytes:
    """All of a content. Raises what its iterator raises."""
    if isinstance(content, bytes):
        return content
    return b"".join([chunk async for chunk in content])
