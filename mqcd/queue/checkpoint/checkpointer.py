"""Keeps the journal short: exports sealed segments and moves what still lives in the oldest one.

The steps C1 to C5, in order: carry what is in flight to the current segment; have the helper copy
contents to the spool and resting records to clusters; commit it by one MANIFEST edit; only then free the
slot and remove what ended. A step that fails leaves the segment as it was, to be tried again: nothing
but the edit changes what the queue consists of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import cast

from mqcd.core.errors import MqcdError, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.disk.durable import describe
from mqcd.queue.checkpoint.evacuation import Move
from mqcd.queue.checkpoint.freeze import Carrying
from mqcd.queue.checkpoint.retainer import Retainer
from mqcd.queue.checkpoint.spool_gc import SpoolGc
from mqcd.queue.disk.reserve import ballast_paths, give_up, wants_room
from mqcd.queue.disk.space import Space
from mqcd.queue.events.export import Exported
from mqcd.queue.helper import jobs
from mqcd.queue.helper.leftovers import Leftovers, RemoveLeftovers
from mqcd.queue.manifest.log import ClusterState, Edit
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.write import Writer
from mqcd.queue.wal.segments import Segment, State

log = logging.getLogger(__name__)

_RETRY_MS = 10_000
"""How long after a failure the next try comes."""


class Checkpointer:
    """One per shard; a task of its own, woken by seals, ages and references to resolve."""

    def __init__(self, shard: Shard, writer: Writer, totals: Counter[Verb], space: Space) -> None:
        self._shard = shard
        self._space = space
        self._writer = writer
        self.spool_gc = SpoolGc(shard)
        self._retainer = Retainer(shard)
        self._carrying = Carrying(shard, writer)
        self._asked = False
        """Whether a timer for the next sweep of the spool runs."""
        self._totals = totals
        """Transitions in all segments that have been evacuated."""
        self._ended: tuple[str, ...] = ()
        """Clusters that the last edit ended."""
        self._tidy = False
        """Whether what the last run left has been removed."""
        self._ballast = dict.fromkeys(ballast_paths(shard.queue_root, shard.spool_root), False)
        """Whether it lies there, as far as is known."""
        self.trouble = ""
        """Why the journal could not be emptied at the last try; "" when it could."""
        self._stopping = False
        self._wake = asyncio.Event()
        self._relief = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to keep; first of all, remove what the last run left."""
        for segment in self._shard.ring:
            self.sealed(segment)
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._run_ended)

    def sealed(self, _segment: Segment) -> None:
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
        """Stop keeping; what is under way is finished first, for half an evacuation helps nobody."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def finish(self) -> None:
        """Export and evacuate everything that can be: the orderly stop. Call after `stop`."""
        try:
            await self._finish()
        except (OSError, MqcdError) as error:
            if not self._finds_room(error):
                raise
            await self._finish()

    async def _finish(self) -> None:
        self._shard.journal.seal()
        await self._shard.journal.quiet()
        self._shard.journal.seal()
        # First of all: who reads the events waits for them, and what comes then may take long.
        await self._export_all()
        await self._remove_leftovers()
        while (oldest := self._shard.ring.oldest_sealed) is not None:
            if any(entry.state is not State.WAITING for entry in oldest.entries.values()):
                log.warning("attempts are under way; the rest of the journal is left for the next start")
                return
            await self.evacuate(oldest)
        await self.spool_gc.finish()

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        """An error of ours has ended it, if nobody stopped it: nothing will be evacuated any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.trouble = f"the checkpointer has failed, the log says how: {error!r}"
            self._relief.set()
            log.critical("the journal's checkpointer has failed", exc_info=error)

    async def _remove_leftovers(self) -> None:
        """Step R4. Nothing is evacuated before: new clusters must not count as left."""
        if not self._tidy:
            shard = self._shard
            task = RemoveLeftovers(
                queue_root=shard.queue_root,
                silos=shard.silos,
                events=shard.options.events,
                source=shard.options.source,
                listed=frozenset(shard.manifest.state.clusters),
            )
            found = cast("Leftovers", await shard.helper.run(task))
            self._tidy = True
            if found.strays:
                text = "%d files that are none of the queue's lie among its own and are left alone, like %s"
                log.warning(text, len(found.strays), found.strays[0])
            if found.kept:
                text = "%d clusters are missing, like %s; %d that the MANIFEST does not list stay, like %s"
                log.error(text, len(found.missing), found.missing[0], len(found.kept), found.kept[0])

    async def _run(self) -> None:
        while not self._stopping:
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
        if not self._stopping:
            await self.spool_gc.run()
            await self._retainer.run()
        # Last, because a full disk must not keep the journal from being emptied.
        try:
            await self._prepare_slots()
            await self._take_ballast()
        except OSError as error:
            log.warning("no files could be made ready, the next seal tries again: %s", describe(error))

    def _failed(self, error: OSError | MqcdError) -> None:
        """Try again: at once when ballast gives the room for it, else after a while."""
        if self._finds_room(error):
            journal = self._shard.journal
            # One that fails tries a new segment by itself, and moves nobody who is in flight before that.
            journal.when_certain(self._wake.set)
            if journal.failing:
                self._shard.later(_RETRY_MS, self._wake.set)
            return
        self.trouble = describe(error) if isinstance(error, OSError) else str(error)
        # Who waits for room need not wait for what has failed.
        self._relief.set()
        log.error("the journal cannot be emptied and will be tried again: %s", self.trouble)
        self._shard.later(_RETRY_MS, self._wake.set)

    def _to_evacuate(self) -> Segment | None:
        shard = self._shard
        oldest = shard.ring.oldest_sealed
        if oldest is None or self._stopping:
            return None
        journal = shard.options.settings.journal
        full = len(shard.ring.segments) * 2 >= shard.ring.slots
        crowded = shard.ring.entries * 2 > shard.journal.max_entries * shard.ring.slots
        aged = shard.clock.monotonic() - oldest.sealed_at >= journal.evacuate_age
        return oldest if full or crowded or aged else None

    async def _prepare_slots(self) -> None:
        # The next few only: the others are made when the journal comes near them.
        ring = self._shard.ring
        size = self._shard.journal.capacity
        for path in [path for path in ring.slot_paths()[:2] if not ring.is_spare(path)]:
            if self._space.room_for(ring.directory, size):
                await self._shard.helper.run(jobs.Prepare(path, size))

    async def _take_ballast(self) -> None:
        size = self._shard.journal.capacity
        for path, there in self._ballast.items():
            if not there and self._space.room_for(path.parent, size):
                await self._shard.helper.run(jobs.TakeBallast(path, size))
                self._ballast[path] = True

    def _finds_room(self, error: BaseException) -> bool:
        """Whether ballast went, so that what failed for want of room may be tried again at once."""
        if not wants_room(error):
            return False
        self._ballast = dict.fromkeys(self._ballast, False)
        return give_up(self._shard.disk, [*self._ballast])

    async def _export(self, segment: Segment) -> None:
        shard = self._shard
        task = jobs.Export(
            segment.header, segment.path, segment.end, shard.options.events, shard.options.source
        )
        exported = cast("Exported", await shard.helper.run(task))
        segment.totals = exported.totals
        if exported.unreadable:
            shard.figures.unreadable += exported.unreadable
            text = "segment %d: no event tells of %d frames, which check but cannot be read, like %s"
            log.error(text, segment.number, exported.unreadable, exported.trouble)
        segment.exported = True
        self._retainer.exported(segment.end)

    async def _export_all(self) -> None:
        for segment in list(self._shard.ring):
            if segment.sealed and not segment.exported and not segment.retired:
                await self._export(segment)

    async def evacuate(self, segment: Segment) -> None:
        """Steps C1 to C5 for one sealed segment. Raises OSError, MqcdError; then nothing has changed."""
        shard = self._shard
        begun = shard.clock.monotonic()
        if not segment.exported:
            # It was sealed while an older one was evacuated: its events must not go with it.
            await self._export(segment)
        await shard.reaper.settled(self._in_a_hurry)
        move = Move(shard, segment)
        try:
            await self._carrying.run(segment, move.frozen)
            task = await move.task()
            done = jobs.Evacuated()
            if task is not None:
                done = cast("jobs.Evacuated", await shard.helper.run(task))
            async with shard.retiring:
                await self._commit(segment, done.clusters)
                move.retire(done.clusters)
        except BaseException as error:
            await self._until_certain(error)
            move.thaw()
            raise
        if done.bad:
            log.error("segment %d: %d records did not check and were put aside", segment.number, done.bad)
        shard.figures.quarantined += done.bad
        await move.release()
        await self._free(segment)
        shard.figures.evacuations += 1
        shard.figures.evacuation_ms += shard.clock.monotonic() - begun

    async def _until_certain(self, error: BaseException) -> None:
        """Wait until the disk says whether the edit happened. Until then the frozen records may have a home
        in clusters already, and must not be claimed. A stop leaves the question to the next start."""
        if self._shard.manifest.uncertain and self._finds_room(error):
            # To take it back needs room, too; what is tried after that need not wait.
            self._wake.set()
        if not await self._shard.editing.certain(lambda: self._stopping):
            raise StoreUnavailable("a MANIFEST edit could neither be made nor taken back")

    async def _commit(self, segment: Segment, clusters: list[ClusterState]) -> None:
        """Step C4: the commit."""
        shard = self._shard
        ring = shard.ring
        following = next((number for number in ring.segments if number > segment.number), ring.next_number)
        totals = self._totals + segment.totals
        changed = {name: shard.cluster_index.clusters[name] for name in shard.cluster_index.changed}
        ended = tuple(name for name, state in changed.items() if not state.left)
        edit = Edit(
            first_live=following,
            exported=segment.number,
            spid=shard.spids.last,
            clock=shard.time.believed(),
            totals={str(verb): count for verb, count in totals.items()},
            add=(*clusters, *(state for state in changed.values() if state.left)),
            end=ended,
        )
        await shard.editing.commit(edit)
        self._totals = totals
        ring.first_live = following
        shard.cluster_index.committed(changed, ended)
        self._ended = ended

    def _in_a_hurry(self) -> bool:
        """Whether readers must not be waited for."""
        ring = self._shard.ring
        return self._stopping or ring.free_slots * 2 <= ring.slots

    def _remove_names(self, segment: Segment) -> None:
        """Before the slot is free, for then its file may be in use again.

        As long as the slot has a file that has failed, its other name tells a later start of it.
        """
        ring, untouchable = self._shard.ring, self._shard.journal.untouchable
        taken = {each.path for each in ring if each is not segment}
        for path in (segment.twin, segment.path):
            if path is None or path in taken or not (ring.is_spare(path) or path in untouchable):
                continue
            try:
                self._shard.disk.unlink(path)
                untouchable.discard(path)
            except OSError as error:
                log.error("%s could not be removed: %s", path, error.strerror)
                untouchable.add(segment.path)
                return

    async def _free(self, segment: Segment) -> None:
        """Step C5: the slot and what ended may go, once no reader holds a pin."""
        shard = self._shard
        ring = shard.ring
        await shard.reaper.unpinned(self._in_a_hurry)
        for name in self._ended:
            shard.reaper.remove(shard.queue_root / name)
        self._remove_names(segment)
        if segment.readers:
            shard.journal.untouchable.add(segment.path)
        elif segment.fd >= 0:
            shard.disk.close(segment.fd)
            segment.fd = -1
        del ring.segments[segment.number]
        shard.journal.resume()
        self._relief.set()
        # Claims that were held back by a full ring may go on.
        shard.notify()
