"""What an evacuation asks of the helper, and what memory lets go of when its edit is durable.

Promise: however many residents a segment has, no turn of the loop handles more than `slices.AT_ONCE` of
them, and counts are right at each moment between.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

from mqcd.core.model import Area
from mqcd.queue import tasks
from mqcd.queue.manifest import ClusterState
from mqcd.queue.ring import Resident, Segment, State
from mqcd.queue.shard import Shard
from mqcd.queue.slices import AT_ONCE, slices


class Move:
    """One evacuation of a segment; `frozen` are its residents from step C1 on."""

    def __init__(self, shard: Shard, segment: Segment) -> None:
        self._shard = shard
        self._segment = segment
        self.frozen: list[Resident] = []
        self._records: Counter[Area] = Counter()
        self._octets: Counter[Area] = Counter()

    async def task(self) -> tasks.Evacuate | None:
        """Steps C2 and C3 for the helper; None when there is nothing to copy."""
        shard, segment = self._shard, self._segment
        settings = shard.options.settings
        # Plain numbers: tens of thousands of small objects would have to be made, pickled and looked at by
        # the collector of cycles, each in one go.
        contents, lines = array("Q"), array("Q")
        links: dict[int, list[int]] = defaultdict(list)
        known: set[int] = set()
        for residents in (self.frozen, tuple(segment.borrowers)):
            async for part in slices(residents):
                self._list_contents(part, contents, links, known)
        async for part in slices(self.frozen):
            for resident in part:
                lines.extend((resident.offset, resident.length, resident.due))
                self._records[resident.area] += 1
                self._octets[resident.area] += resident.size
        if not contents and not lines:
            return None
        return tasks.Evacuate(
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
        self, part: Sequence[Resident], contents: array[int], links: dict[int, list[int]], known: set[int]
    ) -> None:
        segment = self._segment
        for resident in part:
            at = resident.content
            if at.segment != segment.number:
                continue
            segment.spooled[resident.file] = None
            if resident.linked:
                links[resident.spid].append(resident.qid)
            if resident.spid not in known:
                known.add(resident.spid)
                contents.extend((resident.spid, at.offset, at.length))

    def thaw(self) -> None:
        """It has failed: they wait again as before."""
        shard, latest = self._shard, self._shard.latest_due()
        waiting = []
        for resident in self._segment.residents.values():
            if resident.state is State.FROZEN:
                resident.state = State.WAITING
            if resident.state is State.WAITING:
                shard.waiting.leave(resident, latest)
                waiting.append(resident)
        shard.waiting.drop(self._segment.number)
        for resident in waiting:
            shard.waiting.add(resident)
        shard.notify()

    async def moved(self, clusters: Sequence[ClusterState]) -> None:
        """After the commit, memory follows. To be called in the same turn."""
        shard, segment, frozen = self._shard, self._segment, self.frozen
        segment.retired = True
        for area, records in self._records.items():
            shard.accounts.take(area, records, self._octets[area])
        for cluster in clusters:
            shard.accounts.add_cluster(cluster)
        shard.shelf.arrived(clusters, segment.number)
        shard.ring.residents -= len(frozen)
        # Who ends from now on sees to its own file.
        borrowers = tuple(segment.borrowers)
        segment.residents.clear()
        segment.borrowers.clear()
        shard.waiting.drop(segment.number)
        shard.notify()
        needed: set[int] = set()
        async for part in slices(borrowers):
            needed.update(resident.file for resident in part)
        del borrowers
        while frozen:
            for resident in frozen[-AT_ONCE:]:
                needed.add(resident.file)
                shard.evacuated(resident)
            # Nobody else holds them any more: to free them takes its time, too.
            del frozen[-AT_ONCE:]
            await asyncio.sleep(0)
        async for files in slices(tuple(segment.spooled.keys() - needed)):
            for file in files:
                shard.reaper.remove(shard.silos.file(file))
