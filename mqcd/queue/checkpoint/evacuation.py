"""Moves what still lives in one sealed segment to clusters and spool, so that its slot is free again.

A step takes the segment and what earlier steps gave; besides, `Segment.spooled` and `Entries.moving_held`
last:

| step | takes | gives | on disk after it | what its failure leaves |
|---|---|---|---|---|
| C1 `freeze` | | `frozen`: all its entries | what has left it is durable elsewhere | what has moved, moved |
| C2, C3 `_list` | `frozen` | `listed`: contents, lines; adds to `spooled` | the same | the same |
| C2, C3 `_copy` | `listed` | `copied`: clusters | and, as waste, contents and clusters | some of these |
| C3 `_write_keys` | | `keys`: a file, and what it replaces | and, as waste, that file | all of these |
| C4 `_commit` | `listed`, `copied`, `keys` | `moved` | one edit: the segment is waste | the same, or doubt |
| C4 `Shard.evacuated` | `moved` | `borrowers` | the same | a broken journal |
| C5 `_release` | `frozen`, `borrowers` | | contents that no entry needs go | the same |
| C5 `_free` | `moved` | | what ended goes, the segment's file is free | the same |

A failure until `_commit` is undone: entries that rest in the segment wait there again (`thaw`), entries that
CARRY frames have moved stay where they are. Files of C2 and C3 are used or written anew by the next try, or
removed as waste. While it is in doubt whether the edit is durable, all stay frozen (`_until_certain`). What
is durable is not undone: an entry that is thawed would be in a cluster, too. Nor is it tried again: whatever
is raised behind `_commit` is an internal error. What C5 cannot remove is logged.

Only a close cancels an evacuation. Up to the return of `_commit` it is then undone in memory, though the edit
may be durable; in C5 it just ends. Both are harmless: a closed store claims nothing, and the next start goes
by the MANIFEST.

| | the entries of the segment | so that |
|---|---|---|
| from C1 on | all FROZEN | nothing claims, settles or moves one: what is listed stays true |
| `thaw` | FROZEN to WAITING | each is claimed when due, as before |
| `Shard.evacuated`, in one call | out of it | clusters, index, accounts and keys have each once |
| `_release` | FROZEN to EVACUATED, one by one | a reader that met one frozen reads it here until then |

From C1 on no entry leaves the segment, so none becomes a borrower, one that is elsewhere and has its content
here: those that `Shard.evacuated` returns were all listed. Nothing awaits between the end of `_commit` and
`Shard.evacuated`.

No content lies in a newer segment than a record that needs it: an ACCEPT or REPORT frame has both, and a
record moves to newer segments alone. And the oldest segment is evacuated first. So no record in a cluster
needs a content of this segment but those that this evacuation moves: `_release` may remove whatever neither
these nor borrowers need. It must not be called for any but the oldest.

| a borrower ends | its content goes by |
|---|---|
| before `Shard.evacuated` | `_release`: the copy is in the spool, and nothing needs it |
| after it | `Entries.end`, as any content in the spool (`References.finished`) |

Up to C4 the entries are in no queue, and what is begun reads the segment; from then on it reads clusters and
spool. The segment's file stays as it is for what has begun to read before: searches that have met frozen
entries, until these are dropped; readers, until they let their pin go; a content that is being sent, until
its end.

However many entries a segment has, no turn of the loop handles more than `slices.AT_ONCE` of them, and
counts are right at each moment between. What claims, verdicts and a stop meet in each step:
docs/internals.md, "What may run at the same time".
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Area
from mqcd.core.value import value
from mqcd.disk.durable import describe, let_go
from mqcd.disk.waits import in_thread
from mqcd.queue.checkpoint.freezing import Freezing
from mqcd.queue.disk.reserve import Reserve
from mqcd.queue.format.keys import RECORD
from mqcd.queue.helper import jobs
from mqcd.queue.keys.file import OpenFile, WriteKeys, Written
from mqcd.queue.keys.index import MovedKeys
from mqcd.queue.manifest.state import Edit
from mqcd.queue.memory.shard_state import Moved, Shard
from mqcd.queue.memory.slices import AT_ONCE, slices
from mqcd.queue.requests.carries import Carries
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)


@value(kw_only=False)
class _Listed:
    """What moves: as numbers, for tens of thousands of small objects take long to make and to pickle."""

    contents: array[int]
    """SPID, offset and length of each that any unfinished recipient needs."""
    links: Mapping[int, Sequence[int]]
    """QIDs of recipients with a link of their own, by SPID."""
    lines: array[int]
    """Offset, length and due time of each frozen entry's record line."""
    records: Counter[Area]
    octets: Counter[Area]
    """Of the frozen entries."""


class Evacuator:
    """One per shard, driven by its checkpointer."""

    def __init__(self, shard: Shard, carries: Carries, reserve: Reserve, wake: asyncio.Event) -> None:
        """`wake` is set when what has failed need not wait to be tried again."""
        self._shard = shard
        self._carries = carries
        self._reserve = reserve
        self._wake = wake
        self.stopping = False
        """Whether readers and a MANIFEST in doubt are waited for no longer."""

    async def run(self, segment: Segment) -> None:
        """Evacuate a sealed and exported segment. Raises OSError, MqcdError; then all that rests in it
        waits there again, unless the MANIFEST is in doubt at a stop. Raises RuntimeError when memory cannot
        follow the edit; then the journal is broken."""
        shard = self._shard
        begun = shard.clock.monotonic()
        await shard.deleter.settled(self._urgent)
        freezing = Freezing(shard, self._carries, segment)
        try:
            frozen = await freezing.freeze()
            listed = await _list(segment, frozen)
            copied = await self._copy(segment, listed)
            keys = await self._write_keys(segment)
            moved = await self._commit(segment, listed, copied, keys)
        except BaseException as error:
            await self._until_certain(error)
            await freezing.thaw()
            raise
        try:
            # Until the frozen entries are dropped they are read here.
            segment.pin()
            try:
                borrowers = shard.evacuated(segment, moved)
                await self._release(segment, frozen, borrowers)
            finally:
                if (fd := segment.unpin()) >= 0:
                    let_go(shard.disk, fd, "a journal file that is free")
            await self._free(segment, moved)
        except Exception as error:
            shard.journal.break_off()
            text = f"segment {segment.number} is evacuated, and memory does not follow"
            raise RuntimeError(text) from error
        shard.figures.evacuations += 1
        shard.figures.evacuation_ms += shard.clock.monotonic() - begun

    def _urgent(self) -> bool:
        """Whether readers are waited for no longer."""
        ring = self._shard.ring
        return self.stopping or ring.free_slots * 2 <= ring.slots

    async def _copy(self, segment: Segment, listed: _Listed) -> jobs.Evacuated:
        """C2 and C3, by the helper."""
        if not listed.contents and not listed.lines:
            return jobs.Evacuated()
        shard, settings = self._shard, self._shard.options.settings
        task = jobs.Evacuate(
            path=segment.path,
            number=segment.number,
            queue_root=shard.queue_root,
            silos=shard.silos,
            contents=listed.contents,
            links=listed.links,
            lines=listed.lines,
            max_cluster=settings.maxclustersize,
            granularity=settings.retry_granularity,
            holding=shard.options.schedule.holding,
        )
        return cast("jobs.Evacuated", await shard.helper.run(task))

    async def _write_keys(self, segment: Segment) -> MovedKeys:
        """C3: the segment's idempotency keys go to a key file; files whose keys are all too old will end."""
        shard, index = self._shard, self._shard.keys
        listed = tuple(shard.manifest.state.keys.values())
        taken = index.live.until(segment.number)
        ended = index.expired(listed)
        if not taken.records:
            return MovedKeys(taken, None, tuple(ended))
        task = WriteKeys(
            queue_root=shard.queue_root,
            segment=segment.number,
            records=bytes(taken.records),
            merged=[file.name for file in index.to_merge(len(taken.records) // RECORD)],
            since=index.since(),
        )
        written = cast("Written", await shard.helper.run(task))
        if written.bad:
            text = "segment %d: %d idempotency keys did not check and are forgotten"
            log.error(text, segment.number, written.bad)
        file = None
        if written.file is not None:
            opened = (written.file, written.merged, task.records)
            file = await in_thread(shard.executor, index.open_file, *opened, unwanted=OpenFile.close)
        return MovedKeys(taken, file, tuple(dict.fromkeys((*ended, *written.merged))))

    async def _commit(
        self, segment: Segment, listed: _Listed, copied: jobs.Evacuated, keys: MovedKeys
    ) -> Moved:
        """C4: one edit. When it fails the key file is closed."""
        try:
            return await self._commit_edit(segment, listed, copied, keys)
        except BaseException:
            if keys.file is not None:
                keys.file.close()
            raise

    async def _commit_edit(
        self, segment: Segment, listed: _Listed, copied: jobs.Evacuated, keys: MovedKeys
    ) -> Moved:
        shard, ring = self._shard, self._shard.ring
        following = next((number for number in ring.segments if number > segment.number), ring.next_number)
        totals = shard.manifest.state.totals + segment.totals
        changed = shard.cluster_index.to_record()
        edit = Edit(
            first_live=following,
            exported=segment.number,
            spid=shard.spids.last,
            clock=shard.time.believed(),
            replaced=shard.cluster_index.replaced_up_to,
            totals={str(verb): count for verb, count in totals.items()},
            add=(*copied.clusters, *(state for state in changed.values() if state.left)),
            end=(*(name for name, state in changed.items() if not state.left), *keys.ended),
            keys=() if keys.file is None else (keys.file.state,),
        )
        if shard.journal.broken:
            raise StoreUnavailable(shard.journal.broken)
        await shard.editing.commit(edit)
        if copied.bad:
            text = "segment %d: %d records did not check and are in quarantine"
            log.error(text, segment.number, copied.bad)
        return Moved(
            first_live=following,
            records=listed.records,
            octets=listed.octets,
            clusters=copied.clusters,
            bad=copied.bad,
            changed=changed,
            keys=keys,
            ended=edit.end,
        )

    async def _until_certain(self, error: BaseException) -> None:
        """Wait until the disk says whether the edit happened. Until then the frozen records may be in
        clusters already, and must not be claimed. A stop leaves the question to the next start."""
        if self._shard.manifest.uncertain and self._reserve.give_up_for(error):
            # To take the edit back needs room, too; what is tried after that need not wait.
            self._wake.set()
        if not await self._shard.editing.certain(lambda: self.stopping):
            raise StoreUnavailable("a MANIFEST edit could neither be made nor taken back")

    async def _release(
        self, segment: Segment, frozen: list[JournalEntry], borrowers: list[JournalEntry]
    ) -> None:
        """C5: drop the moved entries, and remove the contents that no record needs any more, as the module
        says. Empties both lists: where they have the last reference, to free an entry takes its time, too."""
        shard, needed = self._shard, set[int]()
        async for part in slices(borrowers):
            needed.update(entry.file for entry in part)
        borrowers.clear()
        while frozen:
            for entry in frozen[-AT_ONCE:]:
                needed.add(entry.file)
                shard.entries.evacuated(entry)
            del frozen[-AT_ONCE:]
            await asyncio.sleep(0)
        async for files in slices(tuple(segment.spooled.keys() - needed)):
            for file in files:
                shard.deleter.remove(shard.silos.file(file))

    async def _free(self, segment: Segment, moved: Moved) -> None:
        """C5: free the slot."""
        shard = self._shard
        await shard.deleter.unpinned(self._urgent)
        for name in moved.ended:
            shard.deleter.remove(shard.queue_root / name)
        if shard.ring.may_recycle(segment):
            shard.ring.free.append(segment.path)
        else:
            try:
                shard.disk.unlink(segment.path)
            except OSError as error:
                log.error("a journal file that is free could not be removed: %s", describe(error))
        del shard.ring.segments[segment.number]
        # Claims that were held back by a full ring may go on.
        shard.notify()


async def _list(segment: Segment, frozen: Sequence[JournalEntry]) -> _Listed:
    """What C2 and C3 copy: contents also of entries of other segments that have theirs here."""
    contents, links, seen = array("Q"), defaultdict[int, list[int]](list), set[int]()
    for entries in (frozen, tuple(segment.borrowers)):
        async for part in slices(entries):
            for entry in [each for each in part if each.content.segment == segment.number]:
                segment.spooled[entry.file] = None
                if entry.linked:
                    links[entry.spid].append(entry.qid)
                if entry.spid not in seen:
                    seen.add(entry.spid)
                    contents.extend((entry.spid, entry.content.offset, entry.content.length))
    lines, records, octets = array("Q"), Counter[Area](), Counter[Area]()
    async for part in slices(frozen):
        for entry in part:
            lines.extend((entry.offset, entry.length, entry.due))
            records[entry.area] += 1
            octets[entry.area] += entry.size
    return _Listed(contents, dict(links), lines, records, octets)
