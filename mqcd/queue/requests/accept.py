"""Accepting mail: its content is staged, then a message becomes an ACCEPT frame, or a part of a REPORT frame,
then entries.

Small content waits in memory for its frame; large content goes to the spool first (`Staging`), and is durable
there before the frame that gives it an owner is written. What is staged and then not recorded leaves nothing
behind; what a crash cuts off is removed by the next start's sweep.

A message before which no other new mail waits may go straight to delivery, which reserves a connection or a
place in line for one before the frame is written. Once it is durable its recipients are in flight, as after a
claim. Where the connection is free, the frame says that the first attempt begins, as a BEGUN frame would:
after a crash such a recipient counts as outcome-unknown, though perhaps nothing was sent.

Settings read: `inline_max`, and `bufsize` and `hardlinks` of the spool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from sys import intern
from typing import Any, NamedTuple, TypeVar

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area, Origin, Recipient, Submission
from mqcd.core.ports import FindConnection, Reservation
from mqcd.core.queueing.spid import is_several
from mqcd.core.queueing.transition import arrived
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.disk.durable import describe
from mqcd.queue.disk.space import Space
from mqcd.queue.format import keys, record
from mqcd.queue.format.frame import IN_SPOOL, SUBMISSION_HEAD, Kind, Locator, pack_submission
from mqcd.queue.keys.turns import Turn
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.spool.files import Draft
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.pending import Unplaced
from mqcd.queue.wal.segments import JournalEntry, Segment

Written = TypeVar("Written")

_KEPT_HOT = 4096
"""New entries whose decoded record is kept, because they are tried at once; others are read back."""
_HELD = 64 * 1024
"""Longest content that is handed to a connection from memory; longer ones are read back."""
_TOO_MANY = Reply(code=452, status="4.5.3", text="Too many recipients for one message; send it in parts")


class Staged(NamedTuple):
    """A submission whose content is where its frame will say."""

    submission: Submission
    content: bytes | None
    """None: it lies in the spool."""
    size: int
    draft: Draft | None = None


def _any_room(_octets: int) -> None:
    """As much as there is."""


class Staging:
    """Puts the contents of one shard's new messages where their frames will say."""

    def __init__(self, shard: Shard, space: Space) -> None:
        self._shard = shard
        self._space = space
        self._unfinished: set[asyncio.Task[Any]] = set()
        # Half a frame, so that record lines find room beside the content.
        self._limit = min(shard.options.settings.journal.inline_max, shard.journal.largest_frame // 2)

    def in_memory(self, submission: Submission) -> Staged | None:
        """At once, if the content is whole and small; None = it takes `stage`."""
        content = submission.content
        if isinstance(content, bytes) and len(content) <= self._limit:
            return Staged(submission, content, len(content))
        return None

    async def stage(self, submission: Submission) -> Staged:
        """Take the content in. What its iterator raises passes through; StoreUnavailable for the disk."""
        spid = submission.envelope.spid
        self._shard.entries.arriving.add(spid)
        try:
            return await self._stage(submission)
        except BaseException:
            self._shard.entries.arriving.discard(spid)
            raise

    async def _stage(self, submission: Submission) -> Staged:
        content = submission.content
        if isinstance(content, bytes):
            return self.in_memory(submission) or await self._to_spool(submission, [content], None)
        chunks: list[bytes] = []
        size = 0
        async for chunk in content:
            chunks.append(chunk)
            size += len(chunk)
            if size > self._limit:
                return await self._to_spool(submission, chunks, content)
        return Staged(submission, b"".join(chunks), size)

    async def _to_spool(
        self, submission: Submission, start: list[bytes], rest: AsyncIterator[bytes] | None
    ) -> Staged:
        shard, spool = self._shard, self._shard.options.settings.spool
        spid = submission.envelope.spid
        count = len(submission.recipients)
        links = count if count > 1 and spool.hardlinks else 0
        draft: Draft | None = None
        try:
            await shard.editing.reserve(spid, shard.spids.ceiling(shard.time.believed()))
            # A report has happened already: it may use the room that is kept for that.
            room = _any_room if submission.envelope.origin is Origin.REPORT else self._claim_room
            draft = Draft(shard.disk, shard.executor, shard.silos, spid, links, spool.bufsize, room)
            await draft.fill(start, rest)
            await draft.commit()
        except BaseException as error:
            if draft is not None:
                draft.discard()
            if isinstance(error, OSError):
                raise StoreUnavailable(describe(error)) from error
            raise
        return Staged(submission, None, draft.size, draft)

    def _claim_room(self, octets: int) -> None:
        if short := self._space.short_for("spool", octets):
            raise StoreUnavailable(short)

    async def stage_all(self, submissions: Sequence[Submission]) -> list[Staged]:
        """Each of them, or none."""
        staged: list[Staged] = []
        try:
            for submission in submissions:
                # One by one: those before one that fails must be dropped.
                staged.append(await self.stage(submission))  # noqa: PERF401
        except BaseException:
            self._drop(staged)
            raise
        return staged

    async def see_through(
        self, staged: Sequence[Staged], write: Callable[[], Coroutine[Any, Any, Written]]
    ) -> Written:
        """Write their frame and await it, also when the caller is cancelled: once a frame is on its way, only
        its outcome says whether the staged files have an owner."""

        async def written() -> Written:
            try:
                return await write()
            except Unplaced:
                raise
            except BaseException:
                self._drop(staged)
                raise

        return await asyncio.shield(self.in_background(written()))

    def in_background(self, work: Coroutine[Any, Any, Written]) -> asyncio.Task[Written]:
        """Do what goes on when nobody waits for it any more."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return task

    def _drop(self, staged: Sequence[Staged]) -> None:
        """They were not recorded: nothing of them stays, once that is certain."""
        for each in staged:
            # A frame that failed counts if a kill brings it to light, and must then find its content.
            self._shard.journal.trouble.when_certain(partial(self._discard, each))

    def _discard(self, staged: Staged) -> None:
        self._shard.entries.arriving.discard(staged.submission.envelope.spid)
        if staged.draft is not None:
            staged.draft.discard()


class Message(NamedTuple):
    """An accepted message on its way into the journal."""

    recipients: list[Recipient]
    lines: list[bytes]
    octets: int
    """Of its lines, and of its key behind them."""
    parts: list[bytes]
    """Its part of a frame's body."""
    size: int
    inline: bool
    """Whether its content lies in the frame, not in the spool."""
    memo: int
    """Octets of the fields that only its events have."""


def _waits(recipient: Recipient) -> bool:
    """Whether it is not tried at once."""
    return recipient.due > 0 or recipient.area is Area.HELD


def _message(staged: Staged, recipients: list[Recipient], begun: str = "", key: bytes = b"") -> Message:
    """`begun`: the destination of an attempt that begins with the acceptance."""
    envelope, content, size = recipients[0].envelope, staged.content, staged.size
    part = record.encode_envelope(envelope)
    lines = [record.encode(recipient, part) for recipient in recipients]
    joined = b"".join(lines)
    memo = b""
    if begun:
        memo = record.join(envelope.session, envelope.message_id, begun).encode()
    elif envelope.session or envelope.message_id:
        memo = record.join(envelope.session, envelope.message_id).encode()
    parts = pack_submission(joined, content, size, memo, attempted=bool(begun), key=key)
    octets = len(joined) + len(key)
    return Message(recipients, lines, octets, parts, size, content is not None, len(memo))


class Acceptance:
    """Accepts messages of one shard."""

    def __init__(self, shard: Shard, find: FindConnection | None) -> None:
        """`find`: see `core.ports.QueueStore.hand_over`."""
        self.shard = shard
        self.find = find

    def message(self, staged: Staged) -> Message:
        """The records that a submission makes. Raises ValueError for what the caller did wrong."""
        return _message(staged, self._recipients(staged))

    def _recipients(self, staged: Staged) -> list[Recipient]:
        submission, size = staged.submission, staged.size
        envelope = submission.envelope
        if self.shard.time.in_doubt:
            # Of a clock that has gone back it would be too old to live when the clock agrees again.
            believed = self.shard.time.believed()
            envelope = replace(envelope, received=max(envelope.received, believed))
        addresses = submission.recipients
        if not addresses or is_several(envelope.spid) is not (len(addresses) > 1):
            raise ValueError(f"SPID {envelope.spid:016X} was not reserved for {len(addresses)} recipients")
        dsn = submission.recipient_dsn or ("",) * len(addresses)
        linked = len(addresses) > 1 and self.shard.options.settings.spool.hardlinks
        made = [
            Recipient(envelope=envelope, size=size, qid=number, address=address, dsn=extra, linked=linked)
            for number, (address, extra) in enumerate(zip(addresses, dsn, strict=True), 1)
        ]
        holding = self.shard.options.schedule.holding
        if not (envelope.release or holding or envelope.hold):
            return made
        now = self.shard.time.believed()
        return [arrived(recipient, now, holding) for recipient in made]

    async def accept(self, staged: Staged, turn: Turn | None = None) -> Sequence[Recipient]:
        """Write an ACCEPT frame; `turn`: the use of the submission's key."""
        recipients = self._recipients(staged)
        append = _Append(self, staged, recipients, self._reserve(recipients), turn)
        if turn is not None:
            turn.holders += 1
        try:
            written = append.write()
        except BaseException:
            append.failed()
            raise
        await written
        return recipients

    def _reserve(self, recipients: list[Recipient]) -> Reservation | None:
        """A connection for a message that may be tried at once: older new mail goes first."""
        shard = self.shard
        if self.find is None or any(map(_waits, recipients)) or shard.time.in_doubt or not shard.may_claim:
            return None
        if shard.entries.waiting.has_new or shard.cluster_index.offers.has(Area.INCOMING):
            return None
        return self.find(recipients)

    def arrive(
        self, message: Message, segment: Segment, ordinal: int, at: int, reserved: Reservation | None = None
    ) -> int:
        """The message's recipients become entries: in flight when a connection, or a place in line for one,
        is `reserved`. Returns where it ends."""
        shard = self.shard
        recipients, lines, octets, _, size, inline, memo = message
        shard.entries.arriving.discard(recipients[0].envelope.spid)
        shard.entries.reserved.used(recipients[0].envelope.spid)
        content_at = at + octets
        content = Locator(segment.number, content_at, size) if inline else IN_SPOOL
        tenant = intern(recipients[0].envelope.tenant)
        hot = reserved is not None or shard.ring.entries < _KEPT_HOT
        for recipient, raw in zip(recipients, lines, strict=True):
            entry = JournalEntry(
                recipient.envelope.spid,
                recipient.qid,
                recipient.area,
                recipient.due,
                size,
                recipient.envelope.received,
                content,
                recipient.linked,
                intern(recipient.domain),
                tenant,
            )
            if hot:
                entry.recipient, entry.raw = recipient, raw
            shard.entries.place(entry, segment, ordinal, at, len(raw))
            if reserved is not None:
                entry.on(Event.CLAIM)
                entry.begun = reserved.begins
                shard.entries.active[recipient.key] = entry
            else:
                shard.entries.waiting.add(entry, urgent=recipient.envelope.priority > 0)
            ordinal += 1
            at += len(raw)
        if not recipients[0].linked:
            shard.references.accepted(recipients[0].envelope.spid, len(recipients))
        return content_at + size * inline + memo


@dataclass(slots=True)
class _Append:
    """One ACCEPT frame. Connection and key are in use until it is durable, or certain that it will not be."""

    acceptance: Acceptance
    staged: Staged
    recipients: list[Recipient]
    reserved: Reservation | None
    turn: Turn | None
    at: int = 0
    begun: str = ""
    """The destination of an attempt that begins with it."""
    key: bytes = b""
    message: Message = field(init=False)

    def write(self) -> asyncio.Future[None]:
        """Append it. Raises Refused."""
        journal = self.acceptance.shard.journal
        self.at = self.acceptance.shard.clock.now()
        if self.reserved is not None and self.reserved.begins:
            self.begun = self.reserved.destination
        if self.turn is not None:
            self.key = self.turn.key.name + self.turn.key.digest
        message = self.message = _message(self.staged, self.recipients, self.begun, self.key)
        if message.octets + message.inline * message.size + message.memo > journal.largest_frame:
            raise Refused(_TOO_MANY)
        entries = len(self.recipients) * (2 if self.begun else 1)
        return journal.append(Kind.ACCEPT, message.parts, entries, self.at, self.placed, self.failed)

    def placed(self, segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
        """It is durable."""
        shard, reserved, recipients = self.acceptance.shard, self.reserved, self.recipients
        self.acceptance.arrive(self.message, segment, ordinal, body + SUBMISSION_HEAD, reserved)
        if self.turn is not None:
            spid = recipients[0].envelope.spid
            shard.keys.live.add(keys.pack_use(self.key, spid, self.at, segment.number))
            self.turn.end()
        shard.observer.accepted(self.at, recipients)
        if reserved is None:
            shard.notify()
            return
        if self.begun:
            shard.observer.attempted(self.at, recipients, self.begun)
        content = self.staged.content
        reserved.use(content if content is not None and len(content) <= _HELD else None)

    def failed(self) -> None:
        """It will not be durable."""
        if self.turn is not None:
            self.turn.let_go()
        if self.reserved is not None:
            self.reserved.release()
