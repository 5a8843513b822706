"""Puts other clusters in the place of those that hold records which a batch selects.

The helper makes two kinds of clusters of each: of the selected lines as the batch changes them, and of the
rest. One REPLACE frame is the commit: it ends the old cluster and names the new ones. Its entries, which the
helper makes too, are the events. So the loop does little for each recipient, and no record moves to the
journal. The old clusters are reserved: no claim reads them before all frames are durable or have failed.

The states of a new cluster's file:

| state | who may remove it | a failure | a cancellation |
|---|---|---|---|
| being made | the next start | leaves it | ends the helper, and leaves it |
| made | this request, the next start | drops it | drops it |
| framed | nobody | drops it when the frame can no longer count | waits: it is durable, or has failed |
| durable | an evacuation, when nothing is left in it | leaves it | leaves it |
| dropped | the deleter, the next start | leaves it | leaves it |

* Being made: the helper writes it. Made: the helper has answered, and no frame names it.
* Framed: a frame that names it has been appended. A failed one may count after a kill (`wal.pending`); if the
  journal can never be written again, the next start sees whether it does.
* Durable: the frame is, and the cluster is part of the queue; also if memory cannot follow (`Unplaced`).
* Dropped: it is no part of the queue, and the deleter has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.core.model import Amended, Batch, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import describe
from mqcd.disk.waits import uncancellable
from mqcd.queue.format import record
from mqcd.queue.format.frame import Kind, Replacement, pack_replacement
from mqcd.queue.helper.divide import Divide, Divided, Divisions
from mqcd.queue.manifest.log import pack_clusters
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.requests.claim import Claims
from mqcd.queue.wal.pending import Unplaced
from mqcd.queue.wal.segments import Segment

log = logging.getLogger(__name__)

TOGETHER = 2000
"""Recipients whose frames become durable together, at least."""
_RUN = 1_000_000_000
"""More clusters than a run makes by division: their numbers begin with the run's epoch."""


class Replacing:
    """Carries out one batch on clusters."""

    def __init__(
        self, shard: Shard, claims: Claims, selection: Selection, batch: Batch, changed: asyncio.Event
    ) -> None:
        """`changed` is set whenever something may have become claimable."""
        self._shard = shard
        self._claims = claims
        self._selection = selection
        self._batch = batch
        self._changed = changed
        self.done: set[str] = set()
        """Clusters that need not be replaced (again): old ones, and new ones with nothing more that is
        selected."""

    async def run(self, names: Sequence[str], most: int) -> AsyncGenerator[int]:
        """Change at most so many recipients in these clusters; gives how many, some at a time.

        Raises StoreUnavailable; the other clusters are then as they were.
        """
        shard, index = self._shard, self._shard.cluster_index
        self.done.update(names)
        made: deque[Divided] = deque()
        # 1. No claim reads them from here on.
        await self._claims.reserve(names)
        try:
            # 2. The helper makes others of each.
            await self._until_ready()
            # One that a claim has emptied before it was reserved may have ended meanwhile.
            states = [index.clusters[name] for name in names if name in index.clusters]
            made.extend(await self._divide(states, most))
            # 3. A frame for each puts those in its place; several become durable together.
            while made:
                await self._until_ready()
                group = [made.popleft()]
                while made and sum(len(each.before) for each in group) < TOGETHER:
                    group.append(made.popleft())
                changed, error = await self._replace(group)
                yield changed
                if error is not None:
                    raise error
        finally:
            self._drop(made)
            index.offers.give_back(names)
            shard.notify()

    async def _until_ready(self) -> None:
        """Wait until the journal takes new work."""
        while not self._shard.may_claim:
            self._changed.clear()
            await self._changed.wait()

    async def _divide(self, states: Sequence[ClusterState], most: int) -> Sequence[Divided]:
        """The files are made when it returns."""
        shard, settings = self._shard, self._shard.options.settings
        task = Divide(
            queue_root=shard.queue_root,
            clusters=[state for state in states if state.left],
            selection=self._selection,
            batch=self._batch,
            most=most,
            latest=shard.latest_due(),
            # The other part is for the frame's head.
            room=shard.journal.largest_frame // 2,
            first=shard.manifest.state.epoch * _RUN + shard.cluster_index.numbered,
            max_cluster=settings.maxclustersize,
            granularity=settings.retry_granularity,
            holding=shard.options.schedule.holding,
        )
        try:
            done = cast("Divisions", await shard.helper.run(task))
        except OSError as error:
            raise StoreUnavailable(f"clusters cannot be changed: {describe(error)}") from error
        for text in done.unread:
            log.error("batch %s leaves out a cluster: %s; run `mqcd fsck`", self._batch.id, text)
        shard.cluster_index.numbered += sum(len(each.changed) + len(each.rest) for each in done.divided)
        return done.divided

    async def _replace(self, group: Sequence[Divided]) -> tuple[int, BaseException | None]:
        """The new clusters instead of the old ones, by one frame each, which become durable together.

        How many recipients that has changed, and why not more.
        """
        try:
            befores = [
                [record.parse(text) async for part in slices(each.before) for text in part] for each in group
            ]
        except BaseException:
            self._drop(group)
            raise
        # In one turn: as soon as there is one, a cancellation waits for its end.
        frames = [self._append(each, before) for each, before in zip(group, befores, strict=True)]
        ended = asyncio.gather(*frames, return_exceptions=True)
        try:
            ends = await asyncio.shield(ended)
        except asyncio.CancelledError:
            await uncancellable(ended)
            self._after(group, ended.result())
            raise
        return self._after(group, ends)

    def _append(self, divided: Divided, before: Sequence[Recipient]) -> asyncio.Future[None]:
        """The frame of one of them."""
        shard, why = self._shard, Amended(batch=self._batch)
        made = (*divided.changed, *divided.rest)
        old = shard.cluster_index.clusters[divided.name]
        head = pack_replacement(Replacement(old.name, old.size, pack_clusters(made)))
        at = shard.clock.now()

        def placed(_segment: Segment, _ordinal: int, _body: int, sequence: int) -> None:
            shard.entries.accounts.take(old.area, old.left, old.octets)
            for state in made:
                shard.entries.accounts.add_cluster(state)
            up_to = sequence + len(before)
            shard.cluster_index.replaced(old.name, divided.changed, divided.rest, up_to)
            # A frame has not room for everything: then the rest is looked at again.
            self.done.update(each.name for each in (divided.changed if divided.more else made))
            for recipient in before:
                shard.observer.amended(at, recipient, why)

        return shard.journal.append(Kind.REPLACE, [head, divided.entries], len(before), at, placed)

    def _after(
        self, group: Sequence[Divided], ends: Sequence[BaseException | None]
    ) -> tuple[int, BaseException | None]:
        """Drop what failed frames have named. `ends`: of each frame, None = durable."""
        changed, failure = 0, None
        for each, end in zip(group, ends, strict=True):
            if end is None:
                changed += len(each.before)
                continue
            failure = end
            if isinstance(end, StoreUnavailable) and not isinstance(end, Unplaced):
                self._shard.journal.trouble.when_certain(partial(self._drop, [each]))
        return changed, failure

    def _drop(self, divided: Sequence[Divided]) -> None:
        """What was made is no part of the queue, and never will be."""
        for each in divided:
            for state in (*each.changed, *each.rest):
                self._shard.deleter.remove(self._shard.queue_root / state.name)
