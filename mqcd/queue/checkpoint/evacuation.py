"""What an evacuation asks of the helper, and what memory lets go of when its edit is durable.

Promise: however many entries a segment has, no turn of the loop handles more than `slices.AT_ONCE` of
them, and counts are right at each moment between.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

from mqcd.core.model import Area
from mqcd.queue.helper import jobs
from mqcd.queue.manifest.log import ClusterState
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import AT_ONCE, slices
from mqcd.queue.wal.segments import JournalEntry, Segment, State


class Move:
    """One evacuation of a segment; `frozen` are its entries from step C1 on."""

    def __init__(self, shard: Shard, segment: Segment) -> None:
        self._shard = shard
        self._segment = segment
        self.frozen: list[JournalEntry] = []
        self._records: Counter[Area] = Counter()
        self._octets: Counter[Area] = Counter()
        self._borrowers: tuple[JournalEntry, ...] = ()

    async def task(self) -> jobs.Evacuate | None:
        """Steps C2 and C3 for the helper; None when there is nothing to copy."""
        shard, segment = self._shard, self._segment
        settings = shard.options.settings
        # Plain numbers: tens of thousands of small objects would have to be made, pickled and looked at by
        # the collector of cycles, each in one go.
        contents, lines = array("Q"), array("Q")
        links: dict[int, list[int]] = defaultdict(list)
        known: set[int] = set()
        for entries in (self.frozen, tuple(segment.borrowers)):
            async for part in slices(entries):
                self._list_contents(part, contents, links, known)
        async for part in slices(self.frozen):
            for entry in part:
                lines.extend((entry.offset, entry.length, entry.due))
                self._records[entry.area] += 1
                self._octets[entry.area] += entry.size
        if not contents and not lines:
            return None
        return jobs.Evacuate(
            path=segment.path,
            number=segment.number,
            queue_root=shard.queue_root,
            silos=shard.silos,
            contents=contents,
            links=dict(links),
            lines=lines,
            max_cluster=settings.maxclustersize,
            granularity=settings.retry_granularity,
        )

    def _list_contents(
        self, part: Sequence[JournalEntry], contents: array[int], links: dict[int, list[int]], known: set[int]
    ) -> None:
        segment = self._segment
        for entry in part:
            at = entry.content
            if at.segment != segment.number:
                continue
            segment.spooled[entry.file] = None
            if entry.linked:
                links[entry.spid].append(entry.qid)
            if entry.spid not in known:
                known.add(entry.spid)
                contents.extend((entry.spid, at.offset, at.length))

    def thaw(self) -> None:
        """It has failed: they wait again as before."""
        shard, latest = self._shard, self._shard.latest_due()
        waiting = []
        for entry in self._segment.entries.values():
            if entry.state is State.FROZEN:
                entry.state = State.WAITING
            if entry.state is State.WAITING:
                shard.waiting.leave(entry, latest)
                waiting.append(entry)
        shard.waiting.drop(self._segment.number)
        for entry in waiting:
            shard.waiting.add(entry)
        shard.notify()

    def retire(self, clusters: Sequence[ClusterState]) -> None:
        """After the commit, memory follows. To be called in the same turn."""
        shard, segment = self._shard, self._segment
        segment.retired = True
        for area, records in self._records.items():
            shard.accounts.take(area, records, self._octets[area])
        for cluster in clusters:
            shard.accounts.add_cluster(cluster)
        shard.cluster_index.arrived(clusters, segment.number)
        shard.ring.entries -= len(self.frozen)
        # An entry that ends from now on has its own file removed.
        self._borrowers = tuple(segment.borrowers)
        segment.entries.clear()
        segment.borrowers.clear()
        shard.waiting.drop(segment.number)
        shard.notify()

    async def release(self) -> None:
        """Let go of what was moved, in slices, and remove the contents that nothing needs any more."""
        shard, segment, frozen, borrowers = self._shard, self._segment, self.frozen, self._borrowers
        self._borrowers = ()
        needed: set[int] = set()
        async for part in slices(borrowers):
            needed.update(entry.file for entry in part)
        del borrowers
        while frozen:
            for entry in frozen[-AT_ONCE:]:
                needed.add(entry.file)
                shard.evacuated(entry)
            # Nobody else holds them any more: to free them takes its time, too.
            del frozen[-AT_ONCE:]
            await asyncio.sleep(0)
        async for files in slices(tuple(segment.spooled.keys() - needed)):
            for file in files:
                shard.reaper.remove(shard.silos.file(file))
