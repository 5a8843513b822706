"""Group commit: frames that are appended become durable together, in the order of appending.

Promise: when the future of an append is done without error, its frame and every frame before it are on
disk. There are no timers: a group is what gathered while the last group was syncing, and until a turn of the
loop brings no more. `trouble` says what follows when a group cannot be written, `pending` which frames are
refused and which wait, `sealing` when a segment begins and is sealed.

`Journal._on` alone changes the state of writing, by `TABLE`; `broken` is read off it. How often
writing has failed and why (`trouble`), and whether the segment is to be sealed (`sealing`), are facts beside
it, in any state.

The waiting frames and the current segment are shared with `trouble` and `sealing`, and change in these calls
alone:

| | waiting frames | current segment | `Sealing.wanted` |
|---|---|---|---|
| `append` | one more, the last | | |
| `_next_group` | those that a full ring refuses go | | |
| | the first go, as many as the group takes | | |
| `Sealing.now`, for what does not fit or `seal` | | none, if it is not empty | no |
| `Sealing.begin` | | the new one | |
| `seal`, while a group is with the committer | | | yes |
| `_failed`: `Sealing.leave` | | none, if it is not empty | no |
| then `Trouble.failed` | the group's are first again, without the refused; some wait | none | |
| `_end` | none | | no timer runs |

One thread, the committer, writes and syncs; everything else happens on the event loop, all callbacks, too:

| in this order | when | an exception |
|---|---|---|
| `Trouble.when_certain` | the first group after failures is durable | breaks |
| `on_mended` | the same, if the journal was failing | breaks |
| `on_begun` | the first group of a segment is durable | breaks |
| `Figures.committed` | a group is durable | breaks |
| `placed` of each frame, then its future is done | the same | breaks |
| `on_sealed` | after that; or a new segment is needed | breaks |
| | of a failed segment: among `when_certain` | breaks |
| | in `seal`, or at the segment's age | its caller has it |
| `failed` of a frame, then its future fails | in `append`, which refuses it | its caller has it |
| | the journal refuses it later | breaks; the others fail all the same |
| | in `stop`, or as the journal breaks | is logged |
| `on_broken` | the turn after each `break_off` | the loop reports it |

Breaks: the journal is BROKEN (`break_off`), so that no stop and no evacuation commits what memory holds;
durable frames that are not placed fail with Unplaced, also the one whose `placed` has raised (its `failed`
finds part of that done); waiting ones fail with StoreUnavailable. The loop reports it. An evacuation that
memory cannot follow breaks the journal, too. A group that is with the committer then, or at a stop, is still
placed when it is durable, and refused when it fails.

Each of these callbacks may append: such frames wait for the next group, after a failure for the retry, and
fail at once where the journal has ended. None may wait, or be called twice for a frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from mqcd.core.ports import Clock
from mqcd.core.queueing.spid import SpidSource
from mqcd.core.states import following
from mqcd.disk.durable import Disk
from mqcd.queue.format import segment_header
from mqcd.queue.format.frame import HEADER_SIZE, Kind
from mqcd.queue.wal.committer import Committer, Write
from mqcd.queue.wal.pending import (
    BROKEN,
    Append,
    Group,
    Placed,
    fail,
    fail_all,
    fail_durable,
    fail_full,
    is_more,
    pack_group,
    refuse,
)
from mqcd.queue.wal.sealing import Sealing
from mqcd.queue.wal.segments import Ring, Segment
from mqcd.queue.wal.trouble import Trouble


class State(Enum):
    """What the journal does with frames."""

    IDLE = auto()
    """None waits."""
    DUE = auto()
    """One turn is due that writes the waiting frames: once the loop brings no more, or after a pause, if the
    last group failed."""
    WRITING = auto()
    """A group is with the committer; others wait."""
    BROKEN = auto()
    """None is taken: memory may differ from what is on disk. A group may still be with the committer."""
    CLOSED = auto()
    """None is taken: the queue is being closed. The last group may still be with the committer."""

    __hash__ = object.__hash__
    """Hashed by identity: looked up for each frame."""


class Event(Enum):
    """What changes the state."""

    SCHEDULE = auto()
    EMPTY = auto()
    """The turn has come, and all that waited was refused."""
    WRITE = auto()
    """The turn has come, and a group goes to the committer."""
    DONE = auto()
    """It is durable."""
    FAIL = auto()
    """It has failed, and is written again later."""
    BREAK = auto()
    STOP = auto()

    __hash__ = object.__hash__


TABLE: Mapping[Event, Mapping[State, State]] = {
    Event.SCHEDULE: {State.IDLE: State.DUE},
    Event.EMPTY: {State.DUE: State.IDLE},
    Event.WRITE: {State.DUE: State.WRITING},
    Event.DONE: {State.WRITING: State.IDLE, State.BROKEN: State.BROKEN, State.CLOSED: State.CLOSED},
    Event.FAIL: {State.WRITING: State.DUE, State.BROKEN: State.BROKEN, State.CLOSED: State.CLOSED},
    Event.BREAK: {**dict.fromkeys(State, State.BROKEN), State.CLOSED: State.CLOSED},
    Event.STOP: dict.fromkeys(State, State.CLOSED),
}
ENDED: Mapping[State, str] = {State.BROKEN: BROKEN, State.CLOSED: "the queue has been closed"}
"""Why nothing is taken in one of these: no frame waits, no timer runs, and no turn writes."""

# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_IDLE, _DUE, _WRITING, _BROKEN = State.IDLE, State.DUE, State.WRITING, State.BROKEN


_MOST_TURNS = 8
"""Turns of the loop that a group waits at most while each brings more frames. An idle loop's turn takes
microseconds; with a busy one fewer groups mean fewer syncs and less contention for the interpreter."""


class Figures(Protocol):
    """Counts what the journal does."""

    def committed(self, frames: int, micros: int) -> None:
        """A group of so many frames became durable, so many microseconds after it was begun."""


class Journal:
    """The append-only log of one shard."""

    def __init__(
        self,
        *,
        ring: Ring,
        disk: Disk,
        committer: Committer,
        clock: Clock,
        spids: SpidSource,
        epoch: int,
        sequence: int,
        capacity: int,
        max_entries: int,
        seal_age: int,
        figures: Figures,
    ) -> None:
        self.ring = ring
        self._clock = clock
        self.sequence = sequence
        """Sequence of the next entry."""
        self.capacity = capacity
        """Octets of a segment, its header included."""
        self.largest_frame = capacity // 4
        """Octets of the largest body that is taken at the door."""
        self.frame_room = capacity - segment_header.HEADER_SIZE - HEADER_SIZE
        """Octets of the largest body that fits in a segment at all."""
        self.max_entries = max_entries
        """Unfinished recipients of one segment, at most."""
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._committer = committer
        self._pending: deque[Append] = deque()
        self._state = _IDLE
        self._retry: asyncio.Task[None] | None = None
        self._sealing = Sealing(
            ring,
            clock,
            spids,
            epoch=epoch,
            age=seal_age,
            seal=self.seal,
            on_sealed=lambda segment: self.on_sealed(segment),
        )
        self.trouble = Trouble(ring, disk, clock, self._pending, self._sealing.sealed)
        self.on_mended: Callable[[], None] = lambda: None
        """Called when writing goes well again after it had been failing. Set by `recovery.open`."""
        self.on_begun: Callable[[], None] = lambda: None
        """Called when the first group of a segment is durable. Set by `memory.shard_state`."""
        self.on_sealed: Callable[[Segment], None] = lambda _: None
        """Called when a segment has been sealed. Set by `checkpoint.checkpointer`."""
        self.on_broken: Callable[[], None] = lambda: None
        """Called when the journal has broken. Set by `recovery.open`."""
        self._changed = asyncio.Event()
        """Set at each change of the state."""

    @property
    def broken(self) -> str:
        """Why memory may differ from the journal; "" while it does not, and once `stop` was called."""
        return BROKEN if self._state is _BROKEN else ""

    @property
    def stalled(self) -> str:
        """Why no verdict can become durable now; "" when it can."""
        return self.broken or (self.trouble.text if self.trouble.failing else "")

    def append(
        self,
        kind: Kind,
        parts: list[bytes],
        count: int,
        at: int,
        placed: Placed,
        failed: Callable[[], None] | None = None,
        *,
        again: bool = False,
    ) -> asyncio.Future[None]:
        """Make a frame of `count` entries durable; the future is done when it is, after `placed` was called.
        `again`: see `Append`.

        When it fails `failed` is called, also if the future was cancelled before. Fails with
        StoreUnavailable as the module's text says; what fits in no segment raises ValueError.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        item = Append(kind, parts, count, at, placed, future, failed, again=again)
        octets = item.octets - HEADER_SIZE
        if octets > self.frame_room:
            raise ValueError(f"a frame of {octets} octets fits in no segment of {self.capacity}")
        if self._state in ENDED:
            fail(item, ENDED[self._state])
            return future
        if self.trouble.failures and self.trouble.refuses(item):
            return future
        self._pending.append(item)
        self._schedule()
        return future

    def seal(self) -> None:
        """Close the current segment as soon as what is being written to it is done."""
        if self._state in (_IDLE, _DUE):
            self._sealing.now()
        else:
            # A group of it may still be with the committer.
            self._sealing.wanted = True

    async def quiet(self) -> None:
        """Wait until no frame waits or is being written, or writing goes on failing, or nothing is taken."""
        while self._state is _WRITING or (self._state is _DUE and not self.trouble.failing):
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """End the committer; return when it has ended. What was never written fails with StoreUnavailable."""
        self._end(Event.STOP)
        await self._committer.stop()

    def _on(self, event: Event) -> None:
        """Change the state. Raises IllegalTransition."""
        self._state = following(TABLE, event, self._state, "journal")
        self._changed.set()

    def _schedule(self) -> None:
        """Write what waits soon, unless that is due already, or follows the group under way."""
        if self._state is _IDLE:
            self._on(Event.SCHEDULE)
            self._loop.call_soon(self._gather, 0, _MOST_TURNS)

    def _gather(self, before: int, turns: int) -> None:
        """Write what waits, unless the last turn of the loop has brought more than the `before` frames."""
        waiting = len(self._pending)
        if waiting > before and turns:
            self._loop.call_soon(self._gather, waiting, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        """The turn that is due, if nothing has ended the journal meanwhile."""
        if self._state in ENDED:
            return
        try:
            group = self._next_group()
        except BaseException:
            self.break_off()
            raise
        if group is None:
            self._on(Event.EMPTY)
        else:
            self._write(group)

    def _write(self, group: Group) -> None:
        self._on(Event.WRITE)
        begun = self._clock.micros()
        segment = group.segment
        fresh = segment.fd < 0
        # Not put back after a failure: the committer has removed it then.
        recycled = self.ring.free.pop(0) if fresh and self.ring.free else None
        write = Write(segment, fresh, recycled, self.capacity, group.buffers, group.start, group.end)

        def done(error: OSError | None) -> None:
            if error is None:
                self._on(Event.DONE)
                self._committed(group, self._clock.micros() - begun, fresh)
            else:
                self._on(Event.FAIL)
                self._failed(group, error)

        self._committer.submit(write, done)

    def _next_group(self) -> Group | None:
        """The frames to write now; None when none waits. Seals and begins segments as needed."""
        if self.ring.full:
            # Nothing new is taken, though the current segment may have room: that is for what has happened.
            refuse(self._pending, is_more, fail_full)
        if not self._pending:
            return None
        segment = self.ring.current
        if segment is not None:
            group = self._pack(segment)
            if group.frames:
                return group
            # At once, as the committer has no group of it: the state is DUE.
            self._sealing.now()
        kept = not self.ring.may_begin
        if kept:
            # The segment to begin is one of those that are kept back. For what has happened it may begin.
            refuse(self._pending, is_more, fail_full)
            if not self._pending:
                return None
        return self._pack(self._sealing.begin(self.sequence, kept=kept))

    def _pack(self, segment: Segment) -> Group:
        return pack_group(self._pending, segment, self.sequence, self.capacity, self.max_entries)

    def _committed(self, group: Group, micros: int, fresh: bool) -> None:
        """The group is durable: memory follows, and what is called has the order of the module's table."""
        segment, frames = group.segment, group.frames
        segment.reach(group.end, group.next_ordinal)
        self.sequence = group.next_sequence
        placed = 0
        try:
            if self.trouble.failures and self.trouble.mended():
                self.on_mended()
            if fresh:
                self._sealing.begun(ended=self._state in ENDED)
                self.on_begun()
            self._figures.committed(len(frames), micros)
            for frame in frames:
                frame.placed(segment, frame.ordinal, frame.body, frame.sequence)
                placed += 1
                future = frame.future
                if not future.done():
                    future.set_result(None)
            if self._sealing.wanted:
                self._sealing.now()
        except BaseException:
            # The one that was being placed among them.
            self.break_off(frames[placed:])
            raise
        if self._pending:
            self._schedule()

    def break_off(self, durable: Sequence[Append] = ()) -> None:
        """An internal error may have left memory behind the disk; `durable` frames are not placed."""
        self._loop.call_soon(self.on_broken)
        self._end(Event.BREAK, durable)

    def _end(self, event: Event, durable: Sequence[Append] = ()) -> None:
        """Take nothing from now on. What waits fails, and what is `durable` before it; what their callbacks
        raise can break nothing any more."""
        self._on(event)
        self._sealing.cancel()
        if self._retry is not None:
            self._retry.cancel()
        why = ENDED[self._state]
        waiting = tuple(self._pending)
        self._pending.clear()
        fail_all(durable, fail_durable)
        fail_all(waiting, lambda item: fail(item, why))

    def _failed(self, group: Group, error: OSError) -> None:
        """The group could not be written: `trouble` refuses or keeps its frames. If the journal goes on, some
        frame waits then, at least a note, and the state is DUE: a new segment is tried."""
        ended = self._state in ENDED
        # An empty one stays the current one here: `trouble` removes it.
        self._sealing.leave()
        try:
            self.trouble.failed(group, error, ended=ended)
        except BaseException:
            self.break_off()
            raise
        if not ended:
            self._retry = self._loop.create_task(self._flush_after(self.trouble.retry_ms))

    async def _flush_after(self, ms: int) -> None:
        await self._clock.sleep(ms)
        # Not from here: the loop shall report an error, and nothing awaits this task.
        self._loop.call_soon(self._flush)
