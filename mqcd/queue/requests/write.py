"""What happens to claimed recipients: begin, settle, park.

Each is one frame of the journal. What is too large for one becomes several, each of which holds or not on its
own; new messages are whole in the first.

Before the frame is appended, an entry is marked: `begun` by `begin`, taken back if that frame is refused,
else until it rests; SETTLING by `settle` and `park`. No other part may change a SETTLING entry, and its old
record location stays live. All else in memory changes in `placed`, which the journal calls when the frame is
durable, in the order of the frames. Verdicts and parks wait where the journal cannot be written, so their
frames fail only when it has ended: their entries stay SETTLING then, as nothing claims any more.

Where a record is in its frame follows from the layout (`format.frame`), and `placed` counts it in the same
order: a SETTLE or PARK has entries one behind the other, each of ENTRY_HEAD octets, its record, its note. A
REPORT has the number of its messages (4 octets), the messages (each all of `Message.parts`, the first of
which begins with SUBMISSION_HEAD octets), then such entries. Each recipient and each entry counts as one
ordinal.

An entry's `segment` and `ordinal` are read in the turn of the loop that appends the frame, inside
`Carries.when_carried`: a CARRY frame may move the entry at any other time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from sys import intern
from typing import Any, NamedTuple

from mqcd.core.model import (
    Amended,
    Attempted,
    Recipient,
    Settlement,
    Submission,
    Verdict,
)
from mqcd.core.observing.notifying import notify_verdict
from mqcd.core.queueing.transition import after, not_later, parked
from mqcd.core.smtp.reply import Refused, Reply
from mqcd.queue.format import record, verdict
from mqcd.queue.format.frame import (
    ALIVE,
    ENTRY_HEAD,
    SUBMISSION_HEAD,
    BegunEntry,
    Entry,
    Kind,
    Mark,
    in_frames,
    pack_begun,
    pack_entry,
)
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.accept import Acceptance, Message
from mqcd.queue.requests.carries import Carries
from mqcd.queue.requests.staging import Staged, Staging
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry, Segment

# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_CLAIMED, _SETTLING, _SETTLE = State.CLAIMED, State.SETTLING, Event.SETTLE


class _Change(NamedTuple):
    """One recipient's part of a frame that settles or parks."""

    entry: JournalEntry
    before: Recipient
    following: Recipient | None
    verdict: Verdict | None
    frame_entry: Entry


_Move = tuple[Settlement, JournalEntry, Recipient | None]
"""A verdict, and what it makes of its recipient."""
_Claimed = tuple[JournalEntry, Recipient]


class Writer:
    """Writes the frames that change recipients."""

    def __init__(self, shard: Shard, staging: Staging, acceptance: Acceptance, carries: Carries) -> None:
        self._shard = shard
        self._staging = staging
        self._acceptance = acceptance
        self.carries = carries

    def claimed(self, recipient: Recipient) -> JournalEntry:
        """The entry of a claimed recipient. Raises ValueError when it is not claimed."""
        entry = self._shard.entries.active.get((recipient.envelope.spid, recipient.qid))
        if entry is None or entry.state is _SETTLING:
            spid, qid = recipient.key
            raise ValueError(f"recipient {spid:016X}/{qid} is not claimed")
        return entry

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        """Write a BEGUN frame. The caller settles or parks none of these before it is durable, so none is
        looked at again behind a carry."""
        claimed = [(self.claimed(recipient), recipient) for recipient in recipients]

        def write() -> Awaitable[None]:
            shard = self._shard
            at = shard.clock.now()
            frames = in_frames(claimed, pack, shard.journal.frame_room)
            return _together([self._append_begun(part, body, destination, at) for part, body in frames])

        def pack(claimed: Sequence[_Claimed]) -> bytes:
            begun = [
                BegunEntry(entry.segment.number, entry.ordinal, entry.spid, entry.qid, recipient.attempts + 1)
                for entry, recipient in claimed
            ]
            return pack_begun(destination, begun)

        return self.carries.when_carried(write)

    def _append_begun(
        self, claimed: Sequence[_Claimed], body: bytes, destination: str, at: int
    ) -> asyncio.Future[None]:
        shard = self._shard
        marked = []
        for entry, _ in claimed:
            if not entry.begun:
                # Before the frame is durable: a CARRY behind it has to say so, too.
                entry.begun = True
                marked.append(entry)

        def placed(_segment: Segment, _ordinal: int, _body: int, _sequence: int) -> None:
            shard.observer.attempted(at, [each[1] for each in claimed], destination)

        def failed() -> None:
            for entry in marked:
                entry.begun = False

        return shard.journal.append(Kind.BEGUN, [body], len(claimed), at, placed, failed)

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        """See `core.ports.QueueStore.settle`."""
        if not submissions:
            return self._settle_with(settlements, ())
        self._shard.entries.reserved.check([submission.envelope.spid for submission in submissions])
        staged = [self._staging.in_memory(submission) for submission in submissions]
        small = [each for each in staged if each is not None]
        if len(small) == len(submissions):
            return self._settle_with(settlements, small)
        return self._staging.in_background(self._settle_large(settlements, submissions))

    async def _settle_large(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission]
    ) -> None:
        staged = await self._staging.stage_all(submissions)

        async def write() -> None:
            await self._settle_with(settlements, staged)

        await self._staging.see_through(staged, write)

    def _settle_with(self, settlements: Sequence[Settlement], staged: Sequence[Staged]) -> Awaitable[None]:
        """Write a SETTLE or REPORT frame."""
        moves = [
            (item, self.claimed(item.recipient), after(item.recipient, item.verdict)) for item in settlements
        ]
        messages = [self._acceptance.message(each) for each in staged]
        octets = sum([len(part) for message in messages for part in message.parts]) if messages else 0
        if octets > self._shard.journal.largest_frame:
            raise Refused(Reply(code=452, status="4.3.4", text="Too large to be accepted with verdicts"))

        if self.carries.under_way is None:
            # As `when_carried` does, without a function made for it: the way of nearly every verdict.
            return self._settle(moves, messages)
        return self.carries.when_carried(lambda: self._settle(moves, messages))

    def _settle(self, moves: Sequence[_Move], messages: list[Message]) -> asyncio.Future[Any]:
        changes = []
        shared, of, latest = "", None, 0
        for item, entry, following in moves:
            why = item.verdict
            if following is not None and following.due:
                latest = latest or self._shard.latest_due()
                if following.due > latest:
                    why = not_later(why, latest)
                    following = after(item.recipient, why)
            if isinstance(why, Attempted) and why.attempt is not of:
                # Recipients of one transaction stand together.
                shared, of = verdict.attempt_part(why.attempt), why.attempt
            note = verdict.encode(why, shared, item.recipient)
            mark = verdict.mark_of(why)
            changes.append(self._change(entry, item.recipient, following, why, mark, note))
        _begin_settling(changes)
        if messages:
            return self._append_report(changes, messages)
        return self._append_changes(Kind.SETTLE, changes)

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        """Write a PARK frame."""
        entries = [self.claimed(recipient) for recipient in recipients]

        def write() -> Awaitable[None]:
            due = min(until, self._shard.latest_due()) if until else 0
            changes = [
                self._change(entry, recipient, parked(recipient, due), None, Mark.PARKED, b"")
                for entry, recipient in zip(entries, recipients, strict=True)
            ]
            _begin_settling(changes)
            return self._append_changes(Kind.PARK, changes)

        return self.carries.when_carried(write)

    def _change(
        self,
        entry: JournalEntry,
        before: Recipient,
        following: Recipient | None,
        why: Verdict | None,
        mark: Mark,
        note: bytes,
    ) -> _Change:
        raw = record.encode(following) if following is not None else entry.raw or record.encode(before)
        flags = ALIVE if following is not None else 0
        frame_entry = Entry(mark, flags, entry.segment.number, entry.ordinal, entry.content, raw, note)
        return _Change(entry, before, following, why, frame_entry)

    def _append_changes(self, kind: Kind, changes: list[_Change]) -> asyncio.Future[Any]:
        at, room = self._shard.clock.now(), self._shard.journal.frame_room
        body = _pack(changes)
        if len(body) <= room:
            return self._append_part(kind, changes, body, at)
        frames = in_frames(changes, _pack, room)
        return _together([self._append_part(kind, part, body, at) for part, body in frames])

    def _append_part(
        self, kind: Kind, changes: Sequence[_Change], body: bytes, at: int
    ) -> asyncio.Future[None]:
        def placed(segment: Segment, ordinal: int, body_at: int, _sequence: int) -> None:
            self._change_all(changes, segment, ordinal, body_at, at)

        return self._shard.journal.append(kind, [body], len(changes), at, placed)

    def _append_report(self, changes: list[_Change], messages: list[Message]) -> asyncio.Future[Any]:
        shard = self._shard
        parts = [len(messages).to_bytes(4, "little")]
        for message in messages:
            parts += message.parts
        frame_entries = [pack_entry(change.frame_entry) for change in changes]
        rest = sum(map(len, parts)) + sum(map(len, frame_entries)) - shard.journal.frame_room
        fitting = len(frame_entries)
        while rest > 0 and fitting:
            fitting -= 1
            rest -= len(frame_entries[fitting])
        written = self._append_whole_report(changes[:fitting], messages, parts + frame_entries[:fitting])
        if fitting == len(changes):
            return written
        # Only small segments are too small for a whole call. A power cut between the two has what is left
        # reported once more: a second report is better than none.
        return asyncio.gather(written, self._append_changes(Kind.SETTLE, changes[fitting:]))

    def _append_whole_report(
        self, changes: list[_Change], messages: list[Message], parts: list[bytes]
    ) -> asyncio.Future[None]:
        shard = self._shard
        at = shard.clock.now()
        count = sum(len(message.lines) for message in messages) + len(changes)

        def placed(segment: Segment, ordinal: int, body_at: int, _sequence: int) -> None:
            body_at += 4
            for message in messages:
                body_at = self._acceptance.arrive(message, segment, ordinal, body_at + SUBMISSION_HEAD)
                ordinal += len(message.lines)
                shard.observer.accepted(at, message.recipients)
            self._change_all(changes, segment, ordinal, body_at, at)
            shard.notify()

        return shard.journal.append(Kind.REPORT, parts, count, at, placed)

    def _change_all(
        self, changes: Sequence[_Change], segment: Segment, ordinal: int, body_at: int, at: int
    ) -> None:
        """Memory follows the entries that begin at `ordinal`, and in the file at `body_at`."""
        shard = self._shard
        waits = False
        for entry, before, following, why, frame_entry in changes:
            line_at = body_at + ENTRY_HEAD
            length = len(frame_entry.line)
            body_at = line_at + length + len(frame_entry.note)
            if following is None:
                shard.entries.end(entry)
            else:
                shard.entries.move(entry, segment, ordinal, line_at, length)
                if isinstance(why, Amended):
                    entry.domain = intern(following.lane_key)
                shard.entries.rest(entry, following)
                waits = True
            ordinal += 1
            if why is not None:
                notify_verdict(shard.observer, at, before, why)
        if waits:
            shard.notify()


def _pack(changes: Sequence[_Change]) -> bytes:
    return b"".join([pack_entry(change.frame_entry) for change in changes])


def _together(frames: list[asyncio.Future[None]]) -> asyncio.Future[Any]:
    return frames[0] if len(frames) == 1 else asyncio.gather(*frames)


def _begin_settling(changes: Sequence[_Change]) -> None:
    """All become SETTLING, or none. Raises ValueError for one that is not claimed, or named twice."""
    seen: set[int] = set()
    for change in changes:
        entry = change.entry
        if entry.state is not _CLAIMED or id(entry) in seen:
            name = f"{entry.spid:016X}/{entry.qid}"
            raise ValueError(f"recipient {name} is not claimed any more, or named twice")
        seen.add(id(entry))
    for change in changes:
        change.entry.on(_SETTLE)
