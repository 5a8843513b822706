"""Puts other clusters in the place of those that hold records which a batch selects.

No record moves to the journal, and the loop does little for each recipient. An example: of deferred cluster K
records 1 to 4 are left, and a batch that holds mail selects 2 and 4.

    1  reserve    Claims are offered K no more; a read of it under way has ended.
    2  divide     The helper writes a held cluster of 2 and 4, as the batch changes them, and a deferred one
                  of 1 and 3. It also makes the frame's entries, of 2 and 4: what events are made of.
    3  commit     A REPLACE frame: K has ended, the two are in its place. Memory follows when it is durable.
    4  give back  K holds nothing now. The next evacuation's edit records all of that, and its file goes.

A cluster without a selected line is given back as it was. What becomes of the files of new clusters:

| they are | removed by | a failure | a cancellation |
|---|---|---|---|
| being made: the helper writes them | the next start | leaves them | ends the helper, and leaves them |
| made: no frame names them yet | this request, the next start | drops them | drops them |
| framed: a frame has been appended | nobody | drops them when that is safe | waits for the frame |
| durable, as their frame is | an evacuation, when used up | leaves them | leaves them |
| dropped: no part of the queue | the deleter, the next start | leaves them | leaves them |

Dropping is safe when a failed frame can count no more, as it may after a kill until the journal has been
written again (`Trouble.when_certain`). If it never is, the next start sees whether the frame counts. A
durable frame counts also if memory cannot follow (`Unplaced`): only a restart helps then, and the files stay.

However the request ends, old clusters whose frame is durable have ended, all others are as they were, and
claims are offered these again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
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
        self,
        shard: Shard,
        claims: Claims,
        selection: Selection,
        batch: Batch,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
    ) -> None:
        """`until` waits for what a change of the queue makes true."""
        self._shard = shard
        self._claims = claims
        self._selection = selection
        self._batch = batch
        self._until = until

    async def run(self, names: Sequence[str], most: int) -> AsyncGenerator[Sequence[Divided]]:
        """Change at most so many recipients in these clusters; gives what has been divided, some at a time.

        Raises StoreUnavailable; the other clusters are then as they were.
        """
        shard, index = self._shard, self._shard.cluster_index
        made: deque[Divided] = deque()
        await self._claims.reserve(names)
        try:
            await self._until_ready()
            # One that a claim has emptied before it was reserved may have ended meanwhile.
            states = [index.clusters[name] for name in names if name in index.clusters]
            made.extend(await self._divide(states, most))
            while made:
                await self._until_ready()
                group = [made.popleft()]
                while made and sum(len(each.before) for each in group) < TOGETHER:
                    group.append(made.popleft())
                divided, error = await self._replace(group)
                yield divided
                if error is not None:
                    raise error
        finally:
            self._drop(made)
            index.offers.give_back(names)
            shard.notify()

    async def _until_ready(self) -> None:
        """Wait until the journal takes new work."""
        await self._until(lambda: self._shard.may_claim)

    async def _divide(self, states: Sequence[ClusterState], most: int) -> Sequence[Divided]:
        """Step 2. The files are made when it returns; else the next start removes what is there of them."""
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
            # No name of a division that has returned is used twice; what another has left is written over. A
            # new cluster keeps the old one's segment (`file.segment_of`), and its number is above any that an
            # evacuation gives, begins with the epoch, and counts up in a run.
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

    async def _replace(self, group: Sequence[Divided]) -> tuple[list[Divided], BaseException | None]:
        """Step 3: the new clusters instead of the old ones, by one frame each, which become durable together.

        Of which the frame is durable, and why not of more.
        """
        try:
            befores = [
                [record.parse(text) async for part in slices(each.before) for text in part] for each in group
            ]
        except BaseException:
            self._drop(group)
            raise
        frames: list[asyncio.Future[None]] = []
        fault: Exception | None = None
        try:
            # In one turn: as soon as there is one, a cancellation waits for its end.
            for each, before in zip(group, befores, strict=True):
                frames.append(self._append(each, before))
        except Exception as error:
            # An internal error. Claims are offered nothing yet that a frame under way replaces.
            fault = error
            self._drop(group[len(frames) :])
        framed = group[: len(frames)]
        ended = asyncio.gather(*frames, return_exceptions=True)
        try:
            ends = await asyncio.shield(ended)
        except asyncio.CancelledError:
            await uncancellable(ended)
            self._after(framed, ended.result())
            raise
        durable, failure = self._after(framed, ends)
        return durable, fault or failure

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
            # `sequence` is the first entry's; this is the one behind the last entry's, as `wal.fold` has it.
            # With one less the next start would make clusters again that an edit has ended.
            up_to = sequence + len(before)
            shard.cluster_index.replaced(old.name, divided.changed, divided.rest, up_to)
            for recipient in before:
                shard.observer.amended(at, recipient, why)

        return shard.journal.append(Kind.REPLACE, [head, divided.entries], len(before), at, placed)

    def _after(
        self, group: Sequence[Divided], ends: Sequence[BaseException | None]
    ) -> tuple[list[Divided], BaseException | None]:
        """Drop what failed frames have named. `ends`: of each frame, None = durable."""
        durable, failure = [], None
        for each, end in zip(group, ends, strict=True):
            if end is None:
                durable.append(each)
                continue
            failure = end
            if isinstance(end, StoreUnavailable) and not isinstance(end, Unplaced):
                self._shard.journal.trouble.when_certain(partial(self._drop, [each]))
        return durable, failure

    def _drop(self, divided: Sequence[Divided]) -> None:
        """What was made is no part of the queue, and never will be."""
        for each in divided:
            for state in (*each.changed, *each.rest):
                self._shard.deleter.remove(self._shard.queue_root / state.name)
