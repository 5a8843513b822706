"""The messages of a queue as its store has them, and the one place where they are written.

A message's values are its recipients, by QID, and its events that are in no event file yet, from `FIRST_SLOT`
on. Its document stays until both are gone. An idempotency key is a document of its own.

Changes that come while a write is under way are written together with the next one, in the order in which
they came. A change is seen in `records` once it is durable; where the write fails nothing has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from mqcd.core.errors import DecodeError, StoreDamaged, StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import SpidSource, format_spid
from mqcd.queue.format import record
from mqcd.stores.backend import BEGUN, Backend, Change, Marks, Stored, Write
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.waiting import Key

SPIDS = "spids"
"""The mark above all SPIDs that name a message, or have named one."""
CLOCK = "clock"
"""The mark of the wall time that was last believed, ms."""
EVENTS = "events"
"""The mark above all numbers that events have had."""
NUMBERS_AHEAD = 1_000_000
"""Numbers of events that are reserved at a time."""
FIRST_SLOT = 1 << 30
"""Values from this number on are events. No message has as many recipients."""
KEY_SLOT = FIRST_SLOT - 1
"""The value of an idempotency key, which is a document of its own (`keys`)."""
NEVER = 1 << 53
"""Due time of a document without recipients, ms."""
MOST_CHANGES = 500
"""Changes of one write, about."""

log = logging.getLogger(__name__)

_LOST = StoreUnavailable("another node has taken the message")

_RESTS, _EVENT, _KEY = b"-", b"!", b"k"
"""How a value begins: BEGUN or this of a recipient, whose record line follows; that of an event; of a key."""


@dataclass(slots=True)
class Message:
    """One message."""

    records: dict[int, Recipient]
    """By qid."""
    begun: set[int] = field(default_factory=set)
    """Recipients with an attempt that has no verdict yet."""
    events: dict[int, bytes] = field(default_factory=dict)
    """Lines that are in no event file yet, by slot."""
    key: bytes = b""
    """The line of an idempotency key; b"" in documents that are messages."""

    @property
    def due(self) -> int | None:
        """When its next recipient is due; None when its document ends."""
        return min(
            (each.due for each in self.records.values()), default=NEVER if self.events or self.key else None
        )

    def copy(self) -> Message:
        """One that can be changed without this one."""
        return Message(dict(self.records), set(self.begun), dict(self.events), self.key)

    def value(self, number: int) -> bytes:
        """What is stored under this QID or slot."""
        if number >= FIRST_SLOT:
            return _EVENT + self.events[number]
        if number == KEY_SLOT:
            return _KEY + self.key
        return encode(self.records[number], number in self.begun)

    def values(self) -> Mapping[int, bytes]:
        """All of them."""
        return {number: self.value(number) for number in sorted(self.numbers)}

    @property
    def numbers(self) -> Set[int]:
        """The number of each."""
        numbers = self.records.keys() | self.events.keys()
        return numbers | {KEY_SLOT} if self.key else numbers


@dataclass(slots=True, kw_only=True)
class Edit:
    """A change by one call."""

    puts: Sequence[Recipient] = ()
    begun: bool = False
    """Whether `puts` have attempts that begin."""
    drops: Sequence[Key] = ()
    events: Sequence[Line] = ()
    exported: Sequence[Key] = ()
    """Events, by SPID and slot, that are in an event file now."""
    keys: Sequence[Line] = ()
    """Idempotency keys, by the SPID of each one's document."""
    contents: Mapping[int, bytes | None] = field(default_factory=dict)
    """Of new messages, by SPID; None where it was staged."""
    ended: Callable[[bool], None]
    """Called once it is durable (True) or has failed, before `done`. Lost messages are gone before that."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def needed(self) -> bool:
        """Whether it fails when another node has one of its messages; else that one is left out."""
        return self.begun or bool(self.contents)

    @property
    def spids(self) -> Iterable[int]:
        """The messages that it changes; one may come several times."""
        others = chain(self.drops, self.events, self.exported, self.keys)
        return chain((each.spid for each in self.puts), (spid for spid, _ in others))


def _end_edit(edit: Edit, failure: BaseException | None) -> None:
    edit.ended(failure is None)
    # Its caller may have gone.
    if edit.done.done():
        return
    if failure is None:
        edit.done.set_result(None)
    else:
        edit.done.set_exception(failure)


def encode(recipient: Recipient, begun: bool) -> bytes:
    """The value of a recipient."""
    return (BEGUN if begun else _RESTS) + record.encode(recipient)


def decode(stored: Stored) -> Message:
    """Raises StoreDamaged for a value that cannot be read."""
    message = Message({})
    try:
        for qid, value in stored.values.items():
            if qid >= FIRST_SLOT:
                message.events[qid] = value[1:]
                continue
            if qid == KEY_SLOT:
                message.key = value[1:]
                continue
            recipient = record.decode(value[1:])
            if recipient.key != (stored.spid, qid) or value[:1] not in (BEGUN, _RESTS):
                raise DecodeError("it is of another recipient")
            message.records[qid] = recipient
            if value.startswith(BEGUN):
                message.begun.add(qid)
    except DecodeError as error:
        raise StoreDamaged(f"message {format_spid(stored.spid)}: {error}") from error
    return message


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that are written together."""

    edits: Sequence[Edit]
    after: Mapping[int, Message]
    """The messages that they change, as they are then."""
    gone: Set[int]
    """Messages that are another node's since an edit was made: nothing of them is written."""
    marks: Marks
    """Marks with a new number."""


class Documents:
    """All messages of a queue."""

    def __init__(
        self,
        backend: Backend,
        marks: Marks,
        spids: SpidSource,
        now: Callable[[], int],
        lose: Callable[[Message], None],
        sequence: Callable[[], int],
    ) -> None:
        """`now` is the time by which SPIDs are reserved, ms. `lose` is called with each message that another
        node has taken. `sequence` gives the highest number of an event."""
        self._backend = backend
        self._marks = marks
        self._spids = spids
        self._now = now
        self._lose = lose
        self._sequence = sequence
        self.messages: dict[int, Message] = {}
        self.unexported: dict[Key, bytes] = {}
        """Events that are in no event file yet, by SPID and slot, as they came."""
        self._edits: list[Edit] = []
        """What waits for the next write."""
        self._writing: Sequence[Edit] = ()
        self._under_way: asyncio.Future[Sequence[int]] | None = None
        """The write of `_writing`; where that is empty, of edits of an earlier lease."""

    def edit(self, edit: Edit) -> asyncio.Future[None]:
        """Write a change, after those before it. Returns what is done once it is durable and seen."""
        self._edits.append(edit)
        if not self._writing and self._under_way is None:
            self._write_next()
        return edit.done

    def add(self, spid: int, message: Message) -> None:
        """The message as it is now."""
        self.messages[spid] = message
        for slot, line in message.events.items():
            self.unexported.setdefault((spid, slot), line)

    def drop(self, spids: Iterable[int]) -> None:
        """Forget messages: another node has them."""
        for spid in spids:
            if (message := self.messages.pop(spid, None)) is not None:
                for slot in message.events:
                    self.unexported.pop((spid, slot), None)
                self._lose(message)

    def begin_again(self, marks: Marks, spids: SpidSource) -> None:
        """As another node, perhaps, without messages. Changes under way end: what the store has of them is
        for the next owner."""
        self.drop(list(self.messages))
        self._marks, self._spids = marks, spids
        edits = [*self._writing, *self._edits]
        self._writing, self._edits = (), []
        for edit in edits:
            _end_edit(edit, _LOST if edit.needed else None)

    async def idle(self) -> None:
        """Return when no change waits."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])
            await asyncio.sleep(0)

    def _write_next(self) -> None:
        while self._edits:
            edits = self._writing = self._edits[:MOST_CHANGES]
            del self._edits[:MOST_CHANGES]
            batch = self._batch(edits)
            writing = self._backend.write(self._as_write(batch))
            if not writing.done():
                self._under_way = writing
                writing.add_done_callback(partial(self._written, batch))
                return
            self._end(batch, writing)

    def _written(self, batch: Batch, writing: asyncio.Future[Sequence[int]]) -> None:
        self._under_way = None
        if self._writing is batch.edits:
            self._end(batch, writing)
        elif not writing.cancelled() and (error := writing.exception()) is not None:
            log.info("a write of an earlier lease: %s", error)
        self._write_next()

    def _end(self, batch: Batch, writing: asyncio.Future[Sequence[int]]) -> None:
        self._writing = ()
        error = asyncio.CancelledError() if writing.cancelled() else writing.exception()
        lost = set(batch.gone)
        if error is None:
            lost.update(writing.result())
            self._marks = batch.marks or self._marks
            self.drop(lost)
            # First: an event of the same write may have taken the slot of one that is exported.
            for key in chain.from_iterable(edit.exported for edit in batch.edits):
                self.unexported.pop(key, None)
            for spid, message in batch.after.items():
                if message.due is not None and spid not in lost:
                    self.add(spid, message)
                else:
                    # It is at its end, or another node has it by now.
                    self.messages.pop(spid, None)
        for edit in batch.edits:
            _end_edit(edit, _LOST if edit.needed and not lost.isdisjoint(edit.spids) else error)

    def _batch(self, edits: Sequence[Edit]) -> Batch:
        after = self._after(edits)
        new = set(chain.from_iterable(edit.contents for edit in edits))
        gone = {spid for spid in after if spid not in self.messages and spid not in new}
        for spid in gone:
            del after[spid]
        return Batch(edits, after, gone, self._new_marks(new))

    def _after(self, edits: Sequence[Edit]) -> dict[int, Message]:
        """The messages that these change, as they are then. O(recipients of each)."""
        after: dict[int, Message] = {}
        for edit in edits:
            for spid in edit.spids:
                if spid not in after:
                    before = self.messages.get(spid)
                    after[spid] = before.copy() if before is not None else Message({})
            for each in edit.puts:
                message = after[each.spid]
                message.records[each.qid] = each
                (message.begun.add if edit.begun else message.begun.discard)(each.qid)
            for spid, line in edit.keys:
                after[spid].key = line
            for spid, qid in edit.drops:
                if qid == KEY_SLOT:
                    after[spid].key = b""
                    continue
                after[spid].records.pop(qid, None)
                after[spid].begun.discard(qid)
            for spid, line in edit.events:
                events = after[spid].events
                events[max(events, default=FIRST_SLOT - 1) + 1] = line
            for spid, slot in edit.exported:
                after[spid].events.pop(slot, None)
        return after

    def _as_write(self, batch: Batch) -> Write:
        after = batch.after
        touched: dict[int, set[int]] = defaultdict(set)
        contents: dict[int, bytes | None] = {}
        for edit in batch.edits:
            contents.update(edit.contents)
            for each in edit.puts:
                touched[each.spid].add(each.qid)
            for spid, number in chain(edit.drops, edit.exported):
                touched[spid].add(number)
            for spid, _ in edit.keys:
                touched[spid].add(KEY_SLOT)
        for spid, message in after.items():
            before = self.messages.get(spid)
            touched[spid].update(message.events.keys() - (before.events.keys() if before is not None else ()))
        changes = [self._change(spid, message, touched[spid], contents) for spid, message in after.items()]
        changes.sort(key=lambda change: (not change.is_new, change.due is None))
        return Write(changes=changes, marks=batch.marks)

    @staticmethod
    def _change(
        spid: int, message: Message, touched: set[int], contents: Mapping[int, bytes | None]
    ) -> Change:
        there = message.numbers
        zones = [each.envelope.zone for each in message.records.values()] if spid in contents else []
        return Change(
            spid=spid,
            puts={number: message.value(number) for number in sorted(touched & there)},
            drops=sorted(touched - there),
            due=message.due,
            values=message.values,
            is_new=spid in contents,
            content=contents.get(spid),
            zone=zones[0] if zones else "",
        )

    def _new_marks(self, spids: Iterable[int]) -> Marks:
        sequence = self._sequence()
        if max(spids, default=0) < self._marks.get(SPIDS, 0) and sequence < self._marks.get(EVENTS, 1):
            return {}
        now = self._now()
        return {SPIDS: self._spids.ceiling(now), CLOCK: now, EVENTS: sequence + NUMBERS_AHEAD}
