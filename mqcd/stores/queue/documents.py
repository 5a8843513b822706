"""The messages of a queue as its store has them, and the one place where they are written.

A message's document stays until its recipients and the events that are in no event file yet are gone. An
idempotency key is a document of its own.

Changes that come while a write is under way are written together with the next one, in the order in which
they came. A change is seen in `messages` once it is durable; where the write fails nothing has changed, and
its new messages are `refused`: the next write removes what the store may have of them. Where that takes
several writes, they take turns with changes that wait.

What becomes of an edit; "lost" are messages that other nodes have taken, LOST is StoreUnavailable:

| its write | `ended` | the store has | `messages` | its new messages |
|---|---|---|---|---|
| is durable | True | all | as `after` | seen |
| is durable, some are lost | True | the rest | without the lost, else as `after` | seen |
| the same, and it `fails_without` them | False, LOST | the rest | the same | `refused` |
| fails, or a fault before it | False, the error | all, part or none | unchanged | `refused`, see below |
| is under way at `begin_again` | see below | all, part or none | emptied | `refused`, see below |
| waits at `begin_again` | see below | none | emptied | `refused`, see below |

"The error" is LOST where it `fails_without` what was lost before the write. Where it `replaces`, its new
messages are not refused after a failure, because what they replace may have ended in the store. At
`begin_again` all are lost: an edit that begins attempts or has new messages fails, with LOST, and any other
has ended (True); what the store has of them is for the next owner.

What is under way:

| `_writing` | `_under_way` | |
|---|---|---|
| None | None | idle; so it is in `ended`, too, which may edit |
| a batch | its write | |
| None | a write | one of an earlier lease: nothing begins until it has ended |
| a batch | None | its write is done and is about to be ended: no call from outside sees it |
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Recipient
from mqcd.core.queueing.spid import SpidSource, format_spid
from mqcd.stores.backend import Backend, Change, Marks, Stored, StoreFull, Write, failed
from mqcd.stores.queue.events import Line
from mqcd.stores.queue.message import FIRST_SLOT, KEY_SLOT, Message
from mqcd.stores.queue.refused import TIMES_SHARED, Refused
from mqcd.stores.queue.waiting import Key

SPIDS = "spids"
"""The mark above all SPIDs that name a message, or have named one."""
CLOCK = "clock"
"""The mark of the wall time that was last believed, ms."""
EVENTS = "events"
"""The mark above all numbers that events have had."""
NUMBERS_AHEAD = 1_000_000
"""Numbers of events that are reserved at a time."""
MOST_CHANGES = 500
"""Changes of one write, about."""

log = logging.getLogger(__name__)

LOST = "another node has taken the message"


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
    replaces: bool = False
    """Whether its new messages replace what else it changes: a report its bounces."""
    ended: Callable[[bool], None] = lambda _: None
    """Called once it is durable (True) or has failed, before `done`. Lost messages are gone before that."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def replaced(self) -> Set[int]:
        """The messages that it changes beside its new ones."""
        return set(self.spids) - self.contents.keys()

    def fails_without(self, lost: Set[int]) -> bool:
        """Whether it fails when other nodes have these messages; else what it changes of them is left out.
        An attempt needs all of its messages; new ones need themselves, and one that they replace."""
        needed = self.spids if self.begun else self.contents
        return not lost.isdisjoint(needed) or (self.replaces and self.replaced <= lost)

    @property
    def spids(self) -> Iterable[int]:
        """The messages that it changes; one may come several times."""
        others = chain(self.drops, self.events, self.exported, self.keys)
        return chain((each.spid for each in self.puts), (spid for spid, _ in others))


def _end_edit(edit: Edit, failure: BaseException | None) -> None:
    try:
        edit.ended(failure is None)
    except Exception as error:
        # The other changes must end nevertheless.
        log.critical("what follows a change failed because of a fault", exc_info=error)
        failure = error
    # Its caller may have gone.
    if edit.done.done():
        return
    if failure is None:
        edit.done.set_result(None)
    else:
        edit.done.set_exception(failure)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that are written together; without edits it removes what was refused."""

    edits: Sequence[Edit] = ()
    after: Mapping[int, Message] = field(default_factory=dict)
    """The messages that they change, as they are then."""
    gone: Set[int] = frozenset()
    """Messages that are another node's since an edit was made: nothing of them is written."""
    marks: Marks = field(default_factory=dict)
    """Marks with a new number."""
    removals: Sequence[Change] = ()

    def new(self, edits: Iterable[Edit]) -> Mapping[int, Mapping[int, bytes]]:
        """New messages of some of its edits, with the values that were written."""
        spids = chain.from_iterable(edit.contents for edit in edits)
        return {spid: self.after[spid].values() if spid in self.after else {} for spid in spids}


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
        later: Callable[[], None],
    ) -> None:
        """`now` is the time by which SPIDs are reserved, ms. `lose` is called with each message that another
        node has taken. `sequence` gives the highest number of an event. `later` asks for a `try_again` a
        little later; it may be called again before that."""
        self._backend = backend
        self._marks = marks
        self._spids = spids
        self._now = now
        self._lose = lose
        self._sequence = sequence
        self._later = later
        self.refused = Refused(TIMES_SHARED if backend.lease_ms else 1, MOST_CHANGES)
        self.full = ""
        """Why new mail finds no space; "" when it may."""
        self.messages: dict[int, Message] = {}
        self.unexported: dict[Key, bytes] = {}
        """Events that are in no event file yet, by SPID and slot, as they came."""
        self._edits: list[Edit] = []
        """What waits for the next write."""
        self._edits_next = False
        """Whether a removal was written last: changes that wait go before the next one."""
        self._writing: Batch | None = None
        self._under_way: asyncio.Future[Sequence[int]] | None = None
        """The write of `_writing`; where that is None, a write of an earlier lease."""

    def edit(self, edit: Edit) -> asyncio.Future[None]:
        """Write a change, after those before it. Returns what is done once it is durable and seen."""
        if self.refused:
            self.refused.forget(edit.contents)
        self._edits.append(edit)
        self._write_next()
        return edit.done

    def try_again(self) -> None:
        """Remove what could not be removed, and take new mail again to see whether there is space."""
        self.full = ""
        self.refused.try_again()
        self._write_next()

    def take_back(self, stored: Stored) -> bool:
        """Whether this message, which is in the store and this node's, was refused: then it is removed."""
        taken_back = self.refused.take_back(stored)
        self._write_next()
        return taken_back

    def is_full(self, error: StoreFull) -> None:
        """There is no space for new mail, until `try_again`."""
        self.full = str(error)
        self._later()

    async def may_come(self, spid: int) -> None:
        """Return when content may be staged for a message. Raises StoreUnavailable while what a write that
        failed has left of it cannot be removed, which would remove that content, too."""
        while self.refused.may_be_there(spid):
            if self._under_way is None or not self.refused.room:
                raise StoreUnavailable("what is left of this message's last try cannot be removed yet")
            await asyncio.wait([self._under_way])
        self.refused.forget([spid])

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
        batch, waiting = self._writing or Batch(), self._edits
        self._writing, self._edits = None, []
        edits = [*batch.edits, *waiting]
        self.refused.add(batch.new(edit for edit in edits if not edit.replaces))
        lost = set(chain.from_iterable(edit.spids for edit in edits))
        for edit in edits:
            _end_edit(edit, StoreUnavailable(LOST) if edit.fails_without(lost) else None)
        self._write_next()

    async def idle(self) -> None:
        """Return when no change waits."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])
            await asyncio.sleep(0)

    def _write_next(self) -> None:
        """Begin what waits, unless a write is under way, until one takes its time."""
        while self._writing is None and self._under_way is None and (begun := self._begin()) is not None:
            batch, writing = begun
            self._writing = batch
            if not writing.done():
                self._under_way = writing
                writing.add_done_callback(partial(self._written, batch))
                return
            self._end(batch, writing)

    def _begin(self) -> tuple[Batch, asyncio.Future[Sequence[int]]] | None:
        """Begin to write what comes first; None when nothing waits. After a fault it has failed."""
        removals = () if self._edits and self._edits_next else self.refused.removals()
        edits = self._edits[:MOST_CHANGES] if not removals else []
        if not removals and not edits:
            return None
        self._edits_next = bool(removals)
        del self._edits[: len(edits)]
        try:
            batch = self._batch(edits) if edits else Batch(removals=removals)
            return batch, self._backend.write(self._as_write(batch))
        except Exception as error:
            log.critical("changes cannot be written because of a fault", exc_info=error)
            return Batch(edits, removals=removals), failed(error)

    def _written(self, batch: Batch, writing: asyncio.Future[Sequence[int]]) -> None:
        self._under_way = None
        if self._writing is batch:
            self._end(batch, writing)
        elif not writing.cancelled() and (error := writing.exception()) is not None:
            log.info("a write of an earlier lease: %s", error)
        self._write_next()

    def _end(self, batch: Batch, writing: asyncio.Future[Sequence[int]]) -> None:
        self._writing = None
        error = asyncio.CancelledError() if writing.cancelled() else writing.exception()
        if batch.removals:
            self._end_removals(batch.removals, error)
            return
        lost = {*batch.gone, *(writing.result() if error is None else ())}
        failures: Sequence[BaseException | None] = [error] * len(batch.edits)
        unseen: set[int] = set()
        if lost or error is not None:
            failures = [StoreUnavailable(LOST) if edit.fails_without(lost) else error for edit in batch.edits]
            refused = [*compress(batch.edits, failures)]
            # What new messages replace may have ended in the store, unless it has said that it is lost.
            self.refused.add(batch.new(edit for edit in refused if error is None or not edit.replaces))
            unseen = lost | batch.new(refused).keys()
        if isinstance(error, StoreFull):
            self.is_full(error)
        if error is None:
            self.drop(lost)
            self._see(batch, unseen)
        for edit, failure in zip(batch.edits, failures, strict=True):
            _end_edit(edit, failure)

    def _see(self, batch: Batch, unseen: Set[int]) -> None:
        """A batch is durable; `unseen`: but for these messages, which are another node's or refused."""
        self._marks = batch.marks or self._marks
        if self.full and any(edit.contents for edit in batch.edits):
            self.full = ""
        # First: an event of the same write may have taken the slot of one that is exported.
        for key in chain.from_iterable(edit.exported for edit in batch.edits):
            self.unexported.pop(key, None)
        for spid, message in batch.after.items():
            if message.due is not None and spid not in unseen:
                self.add(spid, message)
            else:
                # It is at its end, or not to be seen.
                self.messages.pop(spid, None)

    def _end_removals(self, removals: Sequence[Change], error: BaseException | None) -> None:
        spids = [each.spid for each in removals]
        if error is None:
            self.refused.removed(spids)
        elif self.refused.failed(spids):
            what = f"message {format_spid(spids[0])}" if len(spids) == 1 else f"{len(spids)} messages"
            log.warning("what is left of refused mail cannot be removed yet, %s: %s", what, error)
        if self.refused:
            self._later()

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
        if batch.removals:
            return Write(changes=batch.removals)
        after = batch.after
        touched: dict[int, set[int]] = defaultdict(set)
        contents: dict[int, bytes | None] = {}
        replaced: set[int] = set()
        for edit in batch.edits:
            if edit.contents:
                contents.update(edit.contents)
            if edit.replaces:
                replaced |= edit.replaced
            for each in edit.puts:
                touched[each.spid].add(each.qid)
            for spid, number in chain(edit.drops, edit.exported):
                touched[spid].add(number)
            for spid, _ in edit.keys:
                touched[spid].add(KEY_SLOT)
        for spid, message in after.items():
            before = self.messages.get(spid)
            touched[spid].update(message.events if before is None else message.events.keys() - before.events)
        changes = [
            self._change(spid, message, touched[spid], contents, spid in replaced)
            for spid, message in after.items()
        ]
        changes.sort(key=lambda change: (not change.is_new, change.due is None))
        return Write(changes=changes, marks=batch.marks)

    @staticmethod
    def _change(
        spid: int, message: Message, touched: set[int], contents: Mapping[int, bytes | None], replaced: bool
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
            replaced=replaced,
        )

    def _new_marks(self, spids: Iterable[int]) -> Marks:
        sequence = self._sequence()
        if max(spids, default=0) < self._marks.get(SPIDS, 0) and sequence < self._marks.get(EVENTS, 1):
            return {}
        now = self._now()
        return {SPIDS: self._spids.ceiling(now), CLOCK: now, EVENTS: sequence + NUMBERS_AHEAD}
