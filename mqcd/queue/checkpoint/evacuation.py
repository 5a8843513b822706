"""Moves what still lives in one sealed segment to clusters and spool, so that its slot is free again.

What holds after each step:

| after | entries of the segment | on disk | what is begun now, reads |
|---|---|---|---|
| C1 `freeze` | frozen, in no queue | what has left it is durable elsewhere | the segment |
| C2 `_copy` | the same | and, as waste, contents in the spool | the segment |
| C3 `_copy`, `_write_keys` | the same | and, as waste, clusters and a key file | the segment |
| C4 `_commit`, `_retire` | in clusters on offer | one edit: the segment is the waste now | clusters, spool |
| C5 `_release`, `_free` | the same | waste is removed, the segment's file is free | clusters, spool |

The segment's file stays as it is for what has begun to read before C4: searches that have met frozen
entries, until these are dropped; readers, until they let their pin go; a content that is being sent, until
its end.

What a failure leaves, in any step before C4's edit is durable: entries that rest in the segment wait there
again (`thaw`), entries that CARRY frames have moved stay where they are. Files of C2 and C3 are used or
written anew by the next try, or removed as waste. If it is not certain whether the edit is durable, all
stay frozen until it is taken back (`_until_certain`). What C5 cannot remove is logged, and stays.

However many entries a segment has, no turn of the loop handles more than `slices.AT_ONCE` of them, and
counts are right at each moment between. What claims, verdicts and a stop meet in each step:
docs/internals.md, "What may run at the same time".
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread
from mqcd.queue.checkpoint.freezing import Freezing
from mqcd.queue.disk.reserve import Reserve
from mqcd.queue.format.keys import RECORD
from mqcd.queue.helper import jobs
from mqcd.queue.keys.file import OpenFile, WriteKeys, Written
from mqcd.queue.keys.live import Taken
from mqcd.queue.manifest.state import ClusterState, Edit
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import AT_ONCE, slices
from mqcd.queue.requests.write import Writer
from mqcd.queue.wal.segments import JournalEntry, Segment, SegmentEvent

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Move:
    """One evacuation of a segment."""

    segment: Segment
    frozen: list[JournalEntry]
    """The entries that move, from C1 until they are dropped in C5."""
    records: Counter[Area] = field(default_factory=Counter)
    octets: Counter[Area] = field(default_factory=Counter)
    """Of the frozen entries."""
    contents: array[int] = field(default_factory=lambda: array("Q"))
    """SPID, offset and length of each: tens of thousands of small objects take long to make and to pickle."""
    listed: set[int] = field(default_factory=set)
    """SPIDs of these."""
    links: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """QIDs of recipients with a link of their own, by SPID."""
    borrowers: tuple[JournalEntry, ...] = ()
    """Entries of other segments whose content was here at the commit."""
    ended: tuple[str, ...] = ()
    """Clusters that the edit ended."""
    taken_keys: Taken = field(default_factory=Taken)
    """Keys of the segment's messages."""
    keys: OpenFile | None = None
    """The file that holds the segment's keys from the commit on."""
    ended_keys: tuple[str, ...] = ()
    """Key files that the edit ended."""


class Evacuator:
    """One per shard, driven by its checkpointer."""

    def __init__(self, shard: Shard, writer: Writer, reserve: Reserve, wake: asyncio.Event) -> None:
        """`wake` is set when what has failed need not wait to be tried again."""
        self._shard = shard
        self._writer = writer
        self._reserve = reserve
        self._wake = wake
        self.stopping = False
        """Whether readers and a MANIFEST in doubt are waited for no longer."""

    async def run(self, segment: Segment) -> None:
        """Evacuate a sealed and exported segment. Raises OSError, MqcdError; then all that rests in it
        waits there again, unless the MANIFEST is in doubt at a stop."""
        shard = self._shard
        begun = shard.clock.monotonic()
        await shard.deleter.settled(self._urgent)
        freezing = Freezing(shard, self._writer, segment)
        move = _Move(segment, freezing.frozen)
        try:
            await freezing.freeze()
            copied = await self._copy(move)
            await self._write_keys(move)
            await self._commit(move, copied.clusters)
            self._retire(move, copied.clusters)
        except BaseException as error:
            if move.keys is not None:
                move.keys.close()
            await self._until_certain(error)
            await freezing.thaw()
            raise
        if copied.bad:
            log.error(
                "segment %d: %d records did not check and are in quarantine", segment.number, copied.bad
            )
        shard.figures.quarantined += copied.bad
        try:
            await self._release(move)
        finally:
            # The pin of `_retire`.
            segment.readers -= 1
        await self._free(move)
        shard.figures.evacuations += 1
        shard.figures.evacuation_ms += shard.clock.monotonic() - begun

    def _urgent(self) -> bool:
        """Whether readers are waited for no longer."""
        ring = self._shard.ring
        return self.stopping or ring.free_slots * 2 <= ring.slots

    async def _copy(self, move: _Move) -> jobs.Evacuated:
        """C2 and C3, by the helper."""
        shard, segment = self._shard, move.segment
        settings = shard.options.settings
        lines = array("Q")
        for entries in (move.frozen, tuple(segment.borrowers)):
            async for part in slices(entries):
                self._list_contents(move, part)
        async for part in slices(move.frozen):
            for entry in part:
                lines.extend((entry.offset, entry.length, entry.due))
                move.records[entry.area] += 1
                move.octets[entry.area] += entry.size
        if not move.contents and not lines:
            return jobs.Evacuated()
        task = jobs.Evacuate(
            path=segment.path,
            number=segment.number,
            queue_root=shard.queue_root,
            silos=shard.silos,
            contents=move.contents,
            links=dict(move.links),
            lines=lines,
            max_cluster=settings.maxclustersize,
            granularity=settings.retry_granularity,
            holding=shard.options.schedule.holding,
        )
        return cast("jobs.Evacuated", await shard.helper.run(task))

    @staticmethod
    def _list_contents(move: _Move, part: Sequence[JournalEntry]) -> None:
        segment = move.segment
        for entry in part:
            if entry.content.segment != segment.number:
                continue
            segment.spooled[entry.file] = None
            if entry.linked:
                move.links[entry.spid].append(entry.qid)
            if entry.spid not in move.listed:
                move.listed.add(entry.spid)
                move.contents.extend((entry.spid, entry.content.offset, entry.content.length))

    async def _write_keys(self, move: _Move) -> None:
        """C3: the segment's idempotency keys go to a key file; files whose keys are all too old will end."""
        shard, number = self._shard, move.segment.number
        index, listed = shard.keys, tuple(shard.manifest.state.keys.values())
        move.taken_keys = index.live.until(number)
        records = bytes(move.taken_keys.records)
        ended = index.expired(listed)
        if records:
            merged = [file.name for file in index.to_merge(len(records) // RECORD)]
            task = WriteKeys(
                queue_root=shard.queue_root,
                segment=number,
                records=records,
                merged=merged,
                since=index.since(),
            )
            written = cast("Written", await shard.helper.run(task))
            ended += written.merged
            if written.bad:
                log.error(
                    "segment %d: %d idempotency keys did not check and are forgotten", number, written.bad
                )
            if written.file is not None:
                move.keys = await in_thread(shard.executor, index.open_file, written.file, written.merged)
        move.ended_keys = tuple(dict.fromkeys(ended))

    async def _commit(self, move: _Move, clusters: list[ClusterState]) -> None:
        """C4: one edit."""
        shard, segment = self._shard, move.segment
        if shard.journal.broken:
            raise StoreUnavailable("memory may differ from the journal after an internal error")
        ring, index = shard.ring, shard.cluster_index
        following = next((number for number in ring.segments if number > segment.number), ring.next_number)
        totals = shard.manifest.state.totals + segment.totals
        changed = index.to_record()
        move.ended = tuple(name for name, state in changed.items() if not state.left)
        edit = Edit(
            first_live=following,
            exported=segment.number,
            spid=shard.spids.last,
            clock=shard.time.believed(),
            replaced=index.replaced_up_to,
            totals={str(verb): count for verb, count in totals.items()},
            add=(*clusters, *(state for state in changed.values() if state.left)),
            end=(*move.ended, *move.ended_keys),
            keys=() if move.keys is None else (move.keys.state,),
        )
        await shard.editing.commit(edit)
        ring.first_live = following
        index.recorded(changed)

    def _retire(self, move: _Move, clusters: Sequence[ClusterState]) -> None:
        """C4: memory follows the edit, in the same turn of the loop."""
        shard, segment = self._shard, move.segment
        segment.on(SegmentEvent.EVACUATE)
        # Until the frozen entries are dropped they are read here.
        segment.readers += 1
        shard.keys.evacuated(move.taken_keys, move.keys, move.ended_keys)
        for area, records in move.records.items():
            shard.entries.accounts.take(area, records, move.octets[area])
        for cluster in clusters:
            shard.entries.accounts.add_cluster(cluster)
            shard.cluster_index.add(cluster)
        shard.ring.entries -= len(move.frozen)
        # An entry that ends from now on has its own file removed.
        move.borrowers = tuple(segment.borrowers)
        segment.entries.clear()
        segment.borrowers.clear()
        shard.entries.moving_held.clear()
        shard.notify()

    async def _until_certain(self, error: BaseException) -> None:
        """Wait until the disk says whether the edit happened. Until then the frozen records may be in
        clusters already, and must not be claimed. A stop leaves the question to the next start."""
        if self._shard.manifest.uncertain and self._reserve.give_up_for(error):
            # To take the edit back needs room, too; what is tried after that need not wait.
            self._wake.set()
        if not await self._shard.editing.certain(lambda: self.stopping):
            raise StoreUnavailable("a MANIFEST edit could neither be made nor taken back")

    async def _release(self, move: _Move) -> None:
        """C5: drop the moved entries, and remove the contents that no entry needs any more."""
        shard, frozen, borrowers = self._shard, move.frozen, move.borrowers
        move.borrowers = ()
        needed: set[int] = set()
        async for part in slices(borrowers):
            needed.update(entry.file for entry in part)
        del borrowers
        while frozen:
            for entry in frozen[-AT_ONCE:]:
                needed.add(entry.file)
                shard.entries.evacuated(entry)
            # This was the last reference: to free them takes its time, too.
            del frozen[-AT_ONCE:]
            await asyncio.sleep(0)
        async for files in slices(tuple(move.segment.spooled.keys() - needed)):
            for file in files:
                shard.deleter.remove(shard.silos.file(file))

    async def _free(self, move: _Move) -> None:
        """C5: free the slot."""
        shard, segment = self._shard, move.segment
        await shard.deleter.unpinned(self._urgent)
        for name in (*move.ended, *move.ended_keys):
            shard.deleter.remove(shard.queue_root / name)
        if shard.ring.may_recycle(segment):
            shard.ring.free.append(segment.path)
        else:
            try:
                shard.disk.unlink(segment.path)
            except OSError as error:
                log.error("a journal file that is free could not be removed: %s", describe(error))
        if not segment.readers and segment.fd >= 0:
            shard.disk.close(segment.fd)
            segment.fd = -1
        del shard.ring.segments[segment.number]
        # Claims that were held back by a full ring may go on.
        shard.notify()
