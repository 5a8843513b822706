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

Where it `replaces`, its new messages are not refused after a failure or at `begin_again`, because what they
replace may have ended in the store. At `begin_again` all are lost: an edit that begins attempts or has new
messages fails, with LOST, and any other has ended (True); what the store has of them is for the next owner.

What is under way; a change begins to be written where it is None:

| `_under_way` | its `group` | its `writing` | |
|---|---|---|---|
| None | | | idle |
| set | a group | is not done | the group is being written |
| set | a group | is done | its edits end: what `ended` changes waits until all of them have |
| set | None | is not done | a write of an earlier lease, whose edits have ended |

So there is one write at a time, and each begins with `messages` and all that `ended` keeps as the one before
has left them.

Who changes what is kept of the store:

| | set, or added to, by | cleared, or taken from, by |
|---|---|---|
| `messages` | `add`, also for `_see` | `drop`; `_see`, what is at its end |
| `unexported` | `add` | `drop`; `_see`, what is exported |
| `full` | `is_full`, also for `_end_failed` | `try_again`; `_see`, after a write with new messages |
| `_marks` | `_see`, those that the write had; `begin_again` | |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain

from mqcd.core.errors import StoreUnavailable
from mqcd.core.queueing.spid import SpidSource, format_spid
from mqcd.stores.backend import Backend, Change, Marks, Stored, StoreFull, failed
from mqcd.stores.queue.edits import LOST, Edit, Group, group_of
from mqcd.stores.queue.message import Message
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


@dataclass(slots=True)
class _UnderWay:
    """A write; see the module's table."""

    group: Group | None
    writing: asyncio.Future[Sequence[int]]
    removes: Set[int] = frozenset()
    """The messages that it removes; they stay at `begin_again`, for the write goes on."""


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
        self._under_way: _UnderWay | None = None

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
        while self.refused.may_be_there(spid) or self._removes(spid):
            if self._under_way is None or self.refused.is_blocked(spid):
                raise StoreUnavailable("what is left of this message's last try cannot be removed yet")
            await asyncio.wait([self._under_way.writing])
        self.refused.forget([spid])

    def _removes(self, spid: int) -> bool:
        """Whether a removal of this message is under way: after the first one, too, others follow."""
        return self._under_way is not None and spid in self._under_way.removes

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
        """Restart empty, possibly under another node number. Changes under way end: what the store has of
        them is for the next owner. Not to be called by an `ended`: the edits of its group would end twice."""
        self.drop(list(self.messages))
        self._marks, self._spids = marks, spids
        group = Group()
        if self._under_way is not None and self._under_way.group is not None:
            group, self._under_way.group = self._under_way.group, None
        edits, self._edits = [*group.edits, *self._edits], []
        self.refused.add(group.new(edit for edit in edits if not edit.replaces))
        _end_without(set(chain.from_iterable(edit.spids for edit in edits)), edits)
        self._write_next()

    async def idle(self) -> None:
        """Return when no change waits."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way.writing])
            await asyncio.sleep(0)

    def _write_next(self) -> None:
        """Begin what waits, unless a write is under way, until one takes its time."""
        while self._under_way is None and (begun := self._begin()) is not None:
            self._under_way = begun
            if not begun.writing.done():
                begun.writing.add_done_callback(partial(self._written, begun))
                return
            self._end(begun)

    def _begin(self) -> _UnderWay | None:
        """Begin to write what comes first; None when nothing waits. After a fault it has failed."""
        removals = () if self._edits and self._edits_next else self.refused.removals()
        edits = self._edits[:MOST_CHANGES] if not removals else []
        if not removals and not edits:
            return None
        self._edits_next = bool(removals)
        del self._edits[: len(edits)]
        group = Group(edits, removals=removals)
        try:
            if edits:
                group = group_of(edits, self.messages, self._new_marks(edits))
            removes = frozenset(each.spid for each in removals)
            return _UnderWay(group, self._backend.write(group.write()), removes)
        except Exception as error:
            log.critical("changes cannot be written because of a fault", exc_info=error)
            return _UnderWay(group, failed(error))

    def _written(self, done: _UnderWay, _: asyncio.Future[Sequence[int]]) -> None:
        self._end(done)
        self._write_next()

    def _end(self, done: _UnderWay) -> None:
        group, error = done.group, _error_of(done.writing)
        try:
            if group is None:
                if error is not None:
                    log.info("a write of an earlier lease: %s", error)
            elif group.removals:
                self._end_removals(group.removals, error)
            elif error is not None:
                self._end_failed(group, error)
            else:
                self._end_durable(group, {*group.gone, *done.writing.result()})
        finally:
            self._under_way = None

    def _end_failed(self, group: Group, error: BaseException) -> None:
        """Nothing of it is seen. The store may have any part of it: what replaces nothing is removed."""
        self.refused.add(group.new(edit for edit in group.edits if not edit.replaces))
        if isinstance(error, StoreFull):
            self.is_full(error)
        for edit in group.edits:
            edit.end(error)

    def _end_durable(self, group: Group, lost: Set[int]) -> None:
        """The store has it, but for the `lost`. In this order:

        1. What is refused: `ended` may let it come again, which forgets it.
        2. What is lost: `_see` removes it from `messages` without `lose`.
        3. What is seen.
        4. `ended`, which goes by what `lose` has moved (`recording._recorded`), and by `messages`.
        """
        refused = group.new(edit for edit in group.edits if edit.fails_without(lost)) if lost else {}
        self.refused.add(refused)
        self.drop(lost)
        self._see(group, lost | refused.keys())
        _end_without(lost, group.edits)

    def _see(self, group: Group, unseen: Set[int]) -> None:
        """Apply a durable group to `messages`, except `unseen` (lost or refused)."""
        self._marks = group.marks or self._marks
        if self.full and any(edit.contents for edit in group.edits):
            self.full = ""
        # First: an event of the same write may have taken the slot of one that is exported.
        for key in chain.from_iterable(edit.exported for edit in group.edits):
            self.unexported.pop(key, None)
        for spid, message in group.after.items():
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

    def _new_marks(self, edits: Iterable[Edit]) -> Marks:
        sequence, new = self._sequence(), chain.from_iterable(edit.contents for edit in edits)
        if max(new, default=0) < self._marks.get(SPIDS, 0) and sequence < self._marks.get(EVENTS, 1):
            return {}
        now = self._now()
        return {SPIDS: self._spids.ceiling(now), CLOCK: now, EVENTS: sequence + NUMBERS_AHEAD}


def _end_without(lost: Set[int], edits: Iterable[Edit]) -> None:
    for edit in edits:
        edit.end(StoreUnavailable(LOST) if lost and edit.fails_without(lost) else None)


def _error_of(writing: asyncio.Future[Sequence[int]]) -> BaseException | None:
    return StoreUnavailable("the write was cancelled") if writing.cancelled() else writing.exception()
