"""Accepting mail: a staged message (`staging`) becomes an ACCEPT frame, or a part of a REPORT frame, then
entries.

A message before which no other new mail waits may go straight to delivery, which reserves a connection or a
place in line for one before the frame is written. Where the connection is free, the frame says that the first
attempt begins, as a BEGUN frame would: after a crash such a recipient counts as outcome-unknown, though
perhaps nothing was sent.

Connection and key are in use while the frame is on its way. What ends that:

| exit of `Acceptance.accept` | frame | key's turn | connection | recipients |
|---|---|---|---|---|
| ValueError: the caller's mistake | none | the caller's | none reserved | - |
| Refused: larger than any frame; the journal refuses at once | none | let go | released | - |
| the journal fails the frame later | may count after a kill, see `wal.trouble` | let go | released | - |
| durable, but memory cannot follow (`Unplaced`) | counts from the next start on | let go | released | - |
| durable | written | ended, its key in memory | none reserved | wait |
| durable | written | ended, its key in memory | used | in flight, as after a claim |

A caller that is cancelled changes nothing: the frame has its outcome all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from sys import intern
from typing import NamedTuple

from mqcd.core.model import Area, Recipient
from mqcd.core.ports import FindConnection, Reservation
from mqcd.core.queueing.spid import is_several
from mqcd.core.queueing.transition import arrived
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.queue.format import keys, record
from mqcd.queue.format.frame import IN_SPOOL, SUBMISSION_HEAD, Kind, Locator, pack_submission
from mqcd.queue.keys.turns import Turn
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.staging import Staged
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry, Segment

_KEPT_HOT = 4096
"""New entries whose decoded record is kept, because they are tried at once; others are read back."""
_HELD = 64 * 1024
"""Longest content that is handed to a connection from memory; longer ones are read back."""
_TOO_MANY = Reply(code=554, status="5.5.3", text="Too many recipients for one message; send it in parts")
"""For good: their records alone exceed the largest frame, since `staging` puts content that has no room
beside them into the spool. A client that repeats the message would get the same reply."""


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
    memo = record.encode_memo(envelope, begun)
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
            # `Turn.hold`, without the call: each message with a key comes here.
            turn.holders += 1
        try:
            written = append.write()
        except BaseException:
            append.failed()
            raise
        # Not shielded: a cancellation cancels the future alone, which nothing else awaits. The journal keeps
        # the frame, and calls `placed` or `failed` all the same (`Journal.append`).
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
