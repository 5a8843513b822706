"""Decides when a segment of the journal is exported and evacuated, and what else the helper does meanwhile.

One task does one thing at a time: leftovers of the last run, exports, evacuations (`evacuation` has their
steps), the sweep of the spool, old event files, slots and reserve files. What fails is tried again after a
while, or at once when a reserve file gives the room for it.

Old event files are removed so that nothing else waits or fails for it: at the start, when the limits change,
and then with the seals of a working server: once an hour, or sooner when so much has been exported that
`maxsize` may be passed. While the clock is in doubt nothing goes for its age. An idle server writes nothing:
what is too old waits for the next mail.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import cast

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.disk.durable import describe
from mqcd.disk.waits import HUNG_MS, within
from mqcd.eventlog.retention import Retain, Retained
from mqcd.queue.checkpoint.evacuation import Evacuator
from mqcd.queue.checkpoint.spool_gc import SpoolGc
from mqcd.queue.disk.reserve import Reserve
from mqcd.queue.disk.space import Space
from mqcd.queue.events.export import Exported
from mqcd.queue.helper import jobs
from mqcd.queue.helper.leftovers import Leftovers, RemoveLeftovers
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.carries import Carries
from mqcd.queue.wal.segments import Segment, SegmentEvent, SegmentState

log = logging.getLogger(__name__)

_RETRY_MS = 10_000
"""How long after a failure the next try comes."""
_RETAIN_MS = 3_600_000
"""How often old event files are looked for, at least."""
_SHARE = 20
"""They are also looked for after exports of one part in so many of `maxsize`."""


class Checkpointer:
    """One per shard; a task of its own, woken by seals, ages and references to resolve."""

    def __init__(self, shard: Shard, carries: Carries, space: Space) -> None:
        self._shard = shard
        self._space = space
        self._wake = asyncio.Event()
        self._relief = asyncio.Event()
        self._reserve = Reserve(shard.disk, shard.queue_root, shard.spool_root)
        self._evacuator = Evacuator(shard, carries, self._reserve, self._wake)
        self.spool_gc = SpoolGc(shard)
        self._retainer = Retainer(shard)
        self._asked = False
        """Whether a timer for the next sweep of the spool runs."""
        self.trouble = ""
        """Why the journal could not be emptied at the last try; "" when it could."""
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        shard.journal.on_sealed = self._sealed

    def start(self) -> None:
        """Begin; first of all, remove what the last run left."""
        for segment in self._shard.ring:
            self._sealed(segment)
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._run_ended)

    def _sealed(self, _segment: Segment) -> None:
        """A segment was sealed: it is to be exported, and evacuated when its age comes."""
        self._wake.set()
        age = self._shard.options.settings.journal.evacuate_age
        # A little late: the loop's timers and the clock may disagree by a millisecond.
        self._loop.call_later((age + 10) / 1000, self._wake.set)

    def wake(self) -> None:
        """Look whether there is something to do."""
        self._wake.set()

    async def relief(self, ms: int) -> None:
        """Wait until a segment has been freed, at most `ms`."""
        self._relief.clear()
        with contextlib.suppress(TimeoutError):
            # wait_for would forget a cancellation that comes together with the relief (until Python 3.12).
            async with asyncio.timeout(ms / 1000):
                await self._relief.wait()

    async def stop(self) -> None:
        """Stop; what is under way is finished first, for half an evacuation is lost work."""
        self._evacuator.stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def finish(self) -> None:
        """Export and evacuate everything that can be: the orderly stop. Call after `stop`."""
        try:
            await self._finish()
        except (OSError, MqcdError) as error:
            if not self._reserve.give_up_for(error):
                raise
            await self._finish()

    async def _finish(self) -> None:
        journal = self._shard.journal
        if journal.broken:
            raise StoreUnavailable(journal.broken)
        journal.seal()
        if not await within(self._shard.clock, HUNG_MS, journal.quiet()):
            raise StoreUnavailable("the disk does not answer")
        # What still waited may have gone to a segment that began after the first call.
        journal.seal()
        # First of all: readers of the events wait for them, and what comes then may take long.
        await self._export_all()
        await self._remove_leftovers()
        while (oldest := self._shard.ring.oldest_sealed) is not None:
            if any(not entry.resting for entry in oldest.entries.values()):
                log.warning("attempts are under way; the rest of the journal is left for the next start")
                return
            await self.evacuate(oldest)
        await self.spool_gc.finish()

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        """Unless it was stopped, an internal error has ended it: nothing is evacuated any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.trouble = f"the checkpointer has failed, the log says how: {error!r}"
            self._relief.set()
            log.critical("the journal's checkpointer has failed", exc_info=error)

    async def _remove_leftovers(self) -> None:
        """Step R4. Nothing is evacuated before: new clusters must not count as left."""
        shard = self._shard
        if not shard.tidy.is_set():
            task = RemoveLeftovers(
                queue_root=shard.queue_root,
                silos=shard.silos,
                events=shard.options.events,
                source=shard.options.source,
                listed=frozenset((*shard.manifest.state.clusters, *shard.cluster_index.clusters)),
                keys=frozenset(shard.manifest.state.keys),
            )
            found = cast("Leftovers", await shard.helper.run(task))
            shard.tidy.set()
            if found.strays:
                text = "%d files that are none of the queue's lie among its own and are left alone, like %s"
                log.warning(text, len(found.strays), found.strays[0])
            if found.kept:
                text = "%d clusters are missing, like %s; %d that the MANIFEST does not list stay, like %s"
                log.error(text, len(found.missing), found.missing[0], len(found.kept), found.kept[0])

    async def _run(self) -> None:
        while not self._evacuator.stopping:
            try:
                await self._round()
                self.trouble = ""
            except (OSError, MqcdError) as error:
                self._failed(error)
            self._ask_again()
            await self._wake.wait()
            self._wake.clear()

    def _ask_again(self) -> None:
        """A sweep of the spool that has to wait is asked for again, by one timer at a time."""
        wait = self.spool_gc.wait()
        if wait is not None and not self._asked:
            self._asked = True
            self._shard.later(wait, self._now)

    def _now(self) -> None:
        self._asked = False
        self._wake.set()

    async def _round(self) -> None:
        await self._remove_leftovers()
        await self._export_all()
        while (oldest := self._to_evacuate()) is not None:
            await self.evacuate(oldest)
        if not self._evacuator.stopping:
            await self.spool_gc.run()
            await self._retainer.run()
        # Last, because a full disk must not keep the journal from being emptied.
        try:
            await self._make_ready()
            await self._make_reserve()
        except OSError as error:
            log.warning("no files could be made ready, the next seal tries again: %s", describe(error))

    def _failed(self, error: OSError | MqcdError) -> None:
        """Try again.

        | a reserve file | the journal | tried again |
        |---|---|---|
        | gives room | can be written | at once |
        | gives room | has failed once (`wal.trouble`) | when a group is written, which is tried at once |
        | gives room | is failing | the same, or after `_RETRY_MS`: it may wait for what this would free |
        | gives none | | after `_RETRY_MS`; accepts that wait for room are refused meanwhile |
        """
        if self._reserve.give_up_for(error):
            journal = self._shard.journal
            # A journal that fails tries a new segment by itself, and moves no entry in flight before that.
            journal.trouble.when_certain(self._wake.set)
            if journal.trouble.failing:
                self._shard.later(_RETRY_MS, self._wake.set)
            return
        self.trouble = describe(error) if isinstance(error, OSError) else str(error)
        # Accepts that wait for room need not wait for what has failed.
        self._relief.set()
        log.error("the journal cannot be emptied and will be tried again: %s", self.trouble)
        self._shard.later(_RETRY_MS, self._wake.set)

    def _to_evacuate(self) -> Segment | None:
        shard = self._shard
        oldest = shard.ring.oldest_sealed
        if oldest is None or self._evacuator.stopping:
            return None
        journal = shard.options.settings.journal
        full = len(shard.ring.segments) * 2 >= shard.ring.slots
        crowded = shard.ring.entries * 2 > shard.journal.max_entries * shard.ring.slots
        aged = shard.clock.monotonic() - oldest.sealed_at >= journal.evacuate_age
        return oldest if full or crowded or aged else None

    async def _make_ready(self) -> None:
        # The next few only: the others are made when the journal comes near them.
        ring, size = self._shard.ring, self._shard.journal.capacity
        while self._space.room_for(ring.directory, size) and (path := ring.next_ready()) is not None:
            await self._shard.helper.run(jobs.Prepare(path, size))
            ring.free.append(path)

    async def _make_reserve(self) -> None:
        size = self._shard.journal.capacity
        for path in self._reserve.missing():
            if self._space.room_for(path.parent, size):
                await self._shard.helper.run(jobs.MakeReserve(path, size))
                self._reserve.made(path)

    async def _export(self, segment: Segment) -> None:
        shard = self._shard
        task = jobs.Export(
            segment.header, segment.path, segment.end, shard.options.events, shard.options.source
        )
        exported = cast("Exported", await shard.helper.run(task))
        segment.totals = exported.totals
        if exported.unreadable:
            shard.figures.unreadable += exported.unreadable
            text = "segment %d: %d frames check but cannot be read, and have no event, like %s"
            log.error(text, segment.number, exported.unreadable, exported.trouble)
        segment.on(SegmentEvent.EXPORT)
        self._retainer.exported(segment.end)

    async def _export_all(self) -> None:
        for segment in list(self._shard.ring):
            if segment.state is SegmentState.SEALED:
                await self._export(segment)

    async def evacuate(self, segment: Segment) -> None:
        """Export a sealed segment, unless that is done, and free its slot. Raises OSError, MqcdError."""
        if segment.state is not SegmentState.EXPORTED:
            # It was sealed while an older one was evacuated: its events must not go with it.
            await self._export(segment)
        await self._evacuator.run(segment)
        self._relief.set()


class Retainer:
    """Removes old event files; driven by its checkpointer."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._next = shard.clock.monotonic()
        self._exported = 0
        self._limits = shard.options.retention
        """Those of the last look."""

    def exported(self, octets: int) -> None:
        """A segment of so many octets has been exported; its event file is hardly larger."""
        self._exported += octets

    async def run(self) -> None:
        """Remove old files, if it is time. A failure is logged, and left to the next time."""
        shard, limits = self._shard, self._shard.options.retention
        now = shard.clock.monotonic()
        crowded = limits.maxsize and self._exported * _SHARE > limits.maxsize
        early = now < self._next and not crowded and limits == self._limits
        self._limits = limits
        if early or not (limits.maxage or limits.maxsize):
            return
        self._next, self._exported = now + _RETAIN_MS, 0
        aged = limits.maxage and shard.time.look()
        task = Retain(
            directory=shard.options.events,
            source=shard.options.source,
            first_live=shard.ring.first_live,
            before=shard.clock.now() - limits.maxage if aged else 0,
            maxsize=limits.maxsize,
        )
        try:
            done = cast("Retained", await shard.helper.run(task))
        except OSError as error:
            log.error("old event files could not be looked for: %s", describe(error))
        except StoreUnavailable as error:
            log.error("old event files could not be looked for: %s", error)
        else:
            self._log(done)

    def _log(self, done: Retained) -> None:
        self._shard.figures.removed_event_files += done.removed
        if done.removed:
            log.info("%d event files with %d octets were too old or too many", done.removed, done.octets)
        if done.failures:
            text = "%d event files that are too old or too many could not be removed: %s"
            log.error(text, len(done.failures), done.failures[0])
