"""What a queue has in memory from `open` to `close`: above all, the state of each recipient.

| a recipient is in | enters | leaves |
|---|---|---|
| `waiting` | `replace`, `wait`, `end_claims` | a claim, a pick; `release`, once durable; `lose` |
| `claimed` | a claim, a pick; `hand_over`, once durable | `record`: `ending`; `lose`: `lost` |
| `ending` | `record` | `_recorded`: waits or gone, `claimed` if the write failed; `lose`: `lost` |
| `lost` | `lose`, of what was in flight | `end_claims`, by that claim's own settle or park |
| `unknown` | `taking._add`, if its attempt had begun | `_end_unknown`, once durable: waits; `lose` |

Claims and picks are in `stored_queue`; `record`, `_recorded` and `hand_over` in `recording`; `_end_unknown`
in `taking`; `release` in `moving`. What is in `claimed`, `ending` or `lost` is in flight.

Invariant between two calls: each recipient in `documents.messages` is in exactly one of these, but that one
in `unknown` may be in `lost`, too. What is in `lost` may have left `documents.messages`.

What a call on claimed recipients leaves of them. Its own are those that no other node has taken; the others
are `lost`, and more may become so until the call ends. "Fails": StoreUnavailable, or a fault.

| call | | its own | the `lost` |
|---|---|---|---|
| each | ValueError, or the queue is not open | unchanged | unchanged |
| `begin` | some are lost: it fails; they may have begun | `claimed` | stay |
| | is being written, is durable, or fails | `claimed` | |
| `settle`, `park` | is being written, whether or not its caller is cancelled | `ending` | stay |
| | is durable | wait or are gone | their claims end |
| | fails: to be called again | `claimed` | stay |
| `settle` | reports are staged; their content raises, or its caller is cancelled | `claimed` | stay |
| | all are lost before it is written, so nothing is | | their claims end |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import field

from mqcd.core.clockwatch import ClockWatch
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import Reserved, SpidSource, format_spid
from mqcd.core.units import DAY
from mqcd.core.value import value
from mqcd.eventlog.files import Source
from mqcd.stores.backend import Backend, Marks
from mqcd.stores.queue.documents import CLOCK, EVENTS, SPIDS, Documents
from mqcd.stores.queue.events import EventLines
from mqcd.stores.queue.figures import Figures
from mqcd.stores.queue.keys import StoredKeys
from mqcd.stores.queue.message import Message
from mqcd.stores.queue.waiting import Key, Waiting

TRY_AGAIN_MS = 10_000
"""When refused mail that could not be removed is tried again, and a store that was full takes mail again."""


@value(kw_only=False)
class Surroundings:
    """What a queue is given."""

    backend: Backend
    clock: Clock
    observer: Observer
    source: Source | None = None
    """The writer of events; None = they are not kept."""
    watchers: list[Callable[[], None]] = field(default_factory=list)

    def notify(self) -> None:
        """Something may have become claimable."""
        for callback in self.watchers:
            callback()


class State:
    """Of one run."""

    def __init__(
        self, around: Surroundings, schedule: RetrySchedule, marks: Marks, key_age: int = DAY
    ) -> None:
        """`key_age`: how long idempotency keys are remembered, ms."""
        self.around = around
        self.schedule = schedule
        clock = around.clock
        self.spids = SpidSource(around.backend.node, marks.get(SPIDS, 0))
        self.reserved = Reserved()
        # A new store does not repeat the numbers that another store of this node has used.
        first = clock.now() * 1000
        self.lines = (
            EventLines(around.source, marks.get(EVENTS, first)) if around.source is not None else None
        )
        """Makes events; None = they are not kept."""
        self.documents = Documents(
            around.backend, marks, self.spids, self.believed, self.lose, self._sequence, self._later
        )
        self.clock_watch = ClockWatch(marks.get(CLOCK, 0), clock.now(), clock.monotonic())
        self.waiting = Waiting()
        self.figures = Figures()
        self.keys = StoredKeys(lambda: (self.believed() - key_age) // 1000)
        self.claimed: set[Key] = set()
        self.ending: set[Key] = set()
        """In flight, and the end of that is being written."""
        self.lost: set[Key] = set()
        """They were in flight when another node took them, and their claims have not ended. Verdicts of those
        count for nothing here. One that has come back meanwhile waits for that end."""
        self.unknown: dict[Key, Recipient] = {}
        """Taken with an attempt that its last node has not ended; to be written as outcome-unknown."""
        self.renewed = clock.monotonic()
        """When the lease was last renewed, about; at first, when the store was opened."""
        self.closing = False
        self.loaded = False
        """Whether what the last run left has been read."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._trying: asyncio.Task[None] | None = None
        """Tries again what the store could not do."""

    def _sequence(self) -> int:
        return self.lines.sequence if self.lines is not None else 0

    def begin_again(self, marks: Marks) -> None:
        """Its lease has run out: none of the messages is its own, and it may be another node now."""
        self.spids = SpidSource(self.around.backend.node, marks.get(SPIDS, 0))
        if self.lines is not None:
            self.lines.sequence = max(self.lines.sequence, marks.get(EVENTS, 0))
        self.documents.begin_again(marks, self.spids)

    # ------------------------------------------------------------ time

    def latest_due(self) -> int:
        """No due time lies later, ms."""
        return self.around.clock.now() + self.schedule.longest

    def believed(self) -> int:
        """The wall time to go by, ms."""
        clock = self.around.clock
        return self.clock_watch.believes(clock.now(), clock.monotonic())

    def look_at_clock(self) -> bool:
        """Whether the wall clock can be believed."""
        clock = self.around.clock
        if self.clock_watch.look(clock.now(), clock.monotonic()) is not None:
            # The clock may have been ahead when due times were set.
            self.waiting.bring_forward(self.latest_due())
            self.around.notify()
        return not self.clock_watch.in_doubt

    # ------------------------------------------------------------ recipients

    def replace(self, old: Recipient | None, new: Recipient | None) -> None:
        """A recipient has come and waits, has changed and waits, or has left."""
        self.figures.replace(old, new)
        if new is not None:
            self.wait(new)

    def wait(self, recipient: Recipient) -> None:
        """It waits; if a claim of before its loss is under way, from the end of that on."""
        if recipient.key not in self.lost:
            self.waiting.add(recipient)

    def lose(self, message: Message) -> None:
        """Another node has it, or may take it."""
        if message.key:
            self.keys.forget(message.key)
        for recipient in message.records.values():
            self.figures.replace(recipient, None)
            self.waiting.remove(recipient.key)
            self.unknown.pop(recipient.key, None)
            for in_flight in (self.claimed, self.ending):
                if recipient.key in in_flight:
                    in_flight.discard(recipient.key)
                    self.lost.add(recipient.key)

    def kept(self, recipients: Sequence[Recipient]) -> Sequence[Recipient]:
        """Recipients that no other node has taken since they were claimed."""
        return [each for each in recipients if each.key not in self.lost] if self.lost else recipients

    def end_claims(self, recipients: Sequence[Recipient]) -> None:
        """Those of them that are lost are not in flight any more."""
        for key in self.lost.intersection(each.key for each in recipients):
            self.lost.discard(key)
            message = self.documents.messages.get(key[0])
            if message is not None and key[1] in message.records and key not in self.unknown:
                self.waiting.add(message.records[key[1]])
                self.around.notify()

    def claimed_records(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        """The records as the queue holds them, each claimed and named once; else ValueError."""
        keys = [recipient.key for recipient in recipients]
        for spid, qid in keys:
            if (spid, qid) not in self.claimed:
                raise ValueError(f"recipient {format_spid(spid)}-{qid} is not claimed")
        if len(set(keys)) < len(keys):
            raise ValueError("a recipient is named twice in one call")
        return [self.documents.messages[spid].records[qid] for spid, qid in keys]

    # ------------------------------------------------------------ tasks

    def in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that runs even before it is awaited, as every other change does."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _later(self) -> None:
        if self._trying is None and not self.closing:
            self._trying = asyncio.ensure_future(self._try_again())

    async def _try_again(self) -> None:
        await self.around.clock.sleep(TRY_AGAIN_MS)
        self._trying = None
        self.documents.try_again()

    async def idle(self) -> None:
        """Return when no change is under way; the last one before it closes."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.documents.idle()
        if self._trying is not None:
            self._trying.cancel()
            self.documents.try_again()
            await self.documents.idle()
