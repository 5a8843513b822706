"""Picks what a batch applies to, wherever the records are, some at a time.

Entries of the journal are claimed where they are; the caller settles them. Records in clusters
stay there: the helper makes others of each cluster, of the selected lines as the batch changes them and
of the rest, and one REPLACE frame puts them in its place. The helper also makes the frame's entries, which
are the events; so the loop does little for each recipient, and no record moves to the journal. Beside mail in
flight an action takes a part of the time alone.

A pick searches the journal, then the clusters. It does so twice: the second search finds what has moved from
one to the other during the first, in the segments that are newer, and in clusters that were not searched.

| meanwhile | the pick |
|---|---|
| a recipient is in flight | passes it over, and names it once |
| a record changes after it was read, before it is claimed | judges again what it has claimed |
| a claim loads a record from a cluster that was not searched | finds it in the second search |
| a selected entry is being evacuated | waits: then it is in a cluster, or still in its segment |
| an evacuation makes clusters | goes on until all are searched |
| a claim wants a cluster that is to be divided | reserves clusters first, and waits for that claim |
| a frame fails | raises StoreUnavailable; the new clusters go when the frame can no longer count |
| the helper finds no room, or another fault of the disk | raises StoreUnavailable; nothing has changed |
| it is cancelled | waits for its frames, and gives clusters back |
| the journal takes no new work | waits before it goes on with clusters |

A record that moves twice during the second search may be missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import cast

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Amended, Batch, Recipient
from mqcd.core.ports import Picked
from mqcd.core.queueing.amendment import APPLIES_TO, applies
from mqcd.core.selecting.pattern import fits
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import describe
from mqcd.disk.uncancellable import uncancellable
from mqcd.queue.clusters.file import queue_of
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from mqcd.queue.format.frame import Kind, Replacement, pack_replacement
from mqcd.queue.helper.divide import Divide, Divided, Divisions
from mqcd.queue.manifest.log import pack_clusters
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.requests.claim import Claims
from mqcd.queue.requests.load import may_claim
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.pending import Unplaced
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

AT_ONCE = 250
"""Entries of the journal that are claimed together."""
RESTS = 4
"""The loop does all of the work on entries of the journal: so it takes a fifth of the time beside mail."""
RESTS_OF_CLUSTERS = 2
"""The loop does little of the work on clusters: helper and disk are what mail would have to wait for."""
MOST_REST_MS = 10_000
TOGETHER = 2000
"""Recipients in clusters whose frames become durable together, at least."""
_OCTETS = 8 << 20
"""Size of the clusters that one task of the helper divides: it holds them in memory."""
_ALL = 1 << 62
_IN_FLIGHT = frozenset({State.CLAIMED, State.CARRYING, State.SETTLING})
_RUN = 1_000_000_000
"""More clusters than a run makes by division: their numbers begin with the run's epoch."""


class Picking:
    """One request."""

    def __init__(self, shard: Shard, claims: Claims, selection: Selection, batch: Batch) -> None:
        self._shard = shard
        self._claims = claims
        self._selection = selection
        self._batch = batch
        self._chosen = chooser(selection)
        self._areas = APPLIES_TO[batch.action]
        self._left = _ALL if selection.limit is None else selection.limit
        self._changed = asyncio.Event()
        """Set whenever something may have become claimable, or an evacuation has ended."""
        self._searched: set[str] = set()
        """Clusters that need not be searched (again)."""
        self._in_flight: set[tuple[int, int]] = set()
        """Selected recipients that were in flight."""
        self._evacuating: list[Segment] = []
        """Segments with selected entries that were being evacuated."""

    async def run(self) -> AsyncGenerator[Picked, None]:
        """All that is selected; the caller settles or parks each part before it asks for the next.

        Raises StoreUnavailable.
        """
        shard = self._shard
        # It writes clusters: not before a start has removed the unlisted ones of the last run.
        await shard.tidy.wait()
        shard.watchers.append(self._changed.set)
        try:
            newest = max((segment.number for segment in shard.ring), default=0)
            async with aclosing(self._search(list(shard.ring))) as parts:
                async for part in parts:
                    yield part
            # What has moved between journal and clusters during the first search.
            recent = [segment for segment in shard.ring if segment.number >= newest]
            async with aclosing(self._search(recent)) as parts:
                async for part in parts:
                    yield part
        finally:
            shard.watchers.remove(self._changed.set)

    async def _search(self, segments: list[Segment]) -> AsyncGenerator[Picked, None]:
        """What is in these segments, then what is in clusters that were not searched yet."""
        while segments and self._left:
            async with aclosing(self._from_journal(segments)) as parts:
                async for part in parts:
                    yield part
            segments = await self._back_in_segments()
        while self._left and (names := self._unsearched()):
            self._searched.update(names)
            begun = self._shard.clock.monotonic()
            async with aclosing(self._from_clusters(names)) as parts:
                async for part in parts:
                    yield part
            await self._yield_to_mail(begun, RESTS_OF_CLUSTERS)

    async def _yield_to_mail(self, begun: int, times: int) -> None:
        """While mail is in flight, rest so many times as long as the work since `begun` took, ms.

        What took long has waited for a disk or for room: there is a longest rest.
        """
        took = self._shard.clock.monotonic() - begun
        if took and self._shard.entries.active:
            await self._shard.clock.sleep(min(took * times, MOST_REST_MS))

    # ------------------------------------------------------------ the journal

    async def _back_in_segments(self) -> list[Segment]:
        """Wait for the evacuations that were met; returns the segments of the failed ones.

        The entries of the others are in clusters.
        """
        evacuating, self._evacuating = self._evacuating, []
        failed = []
        for segment in evacuating:
            while not segment.retired and any(e.state is State.FROZEN for e in segment.entries.values()):
                self._changed.clear()
                await self._changed.wait()
            if not segment.retired:
                failed.append(segment)
        return failed

    async def _from_journal(self, segments: Sequence[Segment]) -> AsyncGenerator[Picked, None]:
        for segment in segments:
            selected = await self._selected(segment)
            while selected and self._left:
                part = selected[-AT_ONCE:]
                del selected[-AT_ONCE:]
                busy = {(each.spid, each.qid) for each in part if each.state in _IN_FLIGHT} - self._in_flight
                self._in_flight |= busy
                if segment not in self._evacuating and any(each.state is State.FROZEN for each in part):
                    self._evacuating.append(segment)
                begun = self._shard.clock.monotonic()
                yield self._part(await self._claims.entries(part), busy)
                await self._yield_to_mail(begun, RESTS)

    async def _selected(self, segment: Segment) -> list[JournalEntry]:
        """Entries of a segment that are selected. What is evacuated meanwhile is met in its clusters."""
        return [
            entry
            async for part in slices(tuple(segment.entries.values()))
            for entry in part
            if entry.area in self._areas and await self._matches(entry)
        ]

    async def _matches(self, entry: JournalEntry) -> bool:
        try:
            text = record.verify(await self._shard.raw_line(entry))
            return (self._chosen is None or self._chosen(text)) and applies(record.parse(text), self._batch)
        except (OSError, DecodeError) as error:
            if entry.state not in (State.ENDED, State.EVACUATED):
                log.error("a record of %016X was left out of batch %s: %s", entry.spid, self._batch.id, error)
            return False

    def _part(self, found: Sequence[Recipient], in_flight: Collection[tuple[int, int]]) -> Picked:
        """Those that the batch still applies to: a record may have changed since it was looked at."""
        chosen = [each for each in found if applies(each, self._batch)][: self._left]
        if len(chosen) < len(found):
            keys = {each.key for each in chosen}
            self._claims.give_back([each for each in found if each.key not in keys])
        self._left -= len(chosen)
        return Picked(recipients=chosen, in_flight=in_flight)

    # ------------------------------------------------------------ clusters

    def _unsearched(self) -> list[str]:
        """Some clusters that may hold selected records, and have not been searched."""
        names, octets = [], 0
        for state in self._shard.cluster_index.clusters.values():
            if state.left and state.name not in self._searched and self._may_hold(state):
                names.append(state.name)
                octets += state.size
                if octets >= _OCTETS:
                    break
        return names

    def _may_hold(self, state: ClusterState) -> bool:
        selection = self._selection
        if state.area not in self._areas or selection.area not in (None, state.area):
            return False
        held_for = queue_of(state.name)
        # The queue of a next hop that an operator chose has recipients of any domain.
        return not (held_for and selection.domain and ":" not in held_for) or fits(selection.domain, held_for)

    async def _from_clusters(self, names: Sequence[str]) -> AsyncGenerator[Picked, None]:
        shard, index = self._shard, self._shard.cluster_index
        waiting: deque[Divided] = deque()
        # 1. No claim reads them from here on.
        await self._claims.reserve(names)
        try:
            # 2. The helper makes two kinds of clusters of each: of changed records, and of the rest.
            await self._until_ready()
            # One that a claim has emptied before it was reserved may have ended meanwhile.
            states = [index.clusters[name] for name in names if name in index.clusters]
            waiting.extend(await self._divide(states))
            # 3. A frame for each puts those in its place; several become durable together.
            while waiting:
                await self._until_ready()
                group = [waiting.popleft()]
                while waiting and sum(len(each.before) for each in group) < TOGETHER:
                    group.append(waiting.popleft())
                changed, error = await self._replace(group)
                self._left -= changed
                yield Picked(changed=changed)
                if error is not None:
                    raise error
        finally:
            for each in waiting:
                self._drop(each)
            index.give_back(names)
            shard.notify()

    async def _until_ready(self) -> None:
        """Wait until the journal takes new work."""
        while not may_claim(self._shard):
            self._changed.clear()
            await self._changed.wait()

    async def _divide(self, states: Sequence[ClusterState]) -> Sequence[Divided]:
        shard, settings = self._shard, self._shard.options.settings
        task = Divide(
            queue_root=shard.queue_root,
            clusters=[state for state in states if state.left],
            selection=self._selection,
            batch=self._batch,
            most=self._left,
            latest=shard.latest_due(),
            # The other part is for the frame's head.
            room=shard.journal.largest_frame // 2,
            first=shard.manifest.state.epoch * _RUN + shard.cluster_index.divisions,
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
        shard.cluster_index.divisions += sum(len(each.changed) + len(each.rest) for each in done.divided)
        return done.divided

    async def _replace(self, group: Sequence[Divided]) -> tuple[int, StoreUnavailable | None]:
        """The new clusters instead of the old ones, by one frame each, which become durable together.

        How many recipients that has changed, and why not more.
        """
        changes: list[tuple[Divided, list[Recipient]]] = []
        try:
            for each in group:
                before = [record.parse(text) async for part in slices(each.before) for text in part]
                changes.append((each, before))
        except BaseException:
            for each in group:
                self._drop(each)
            raise
        # In one turn: as soon as there is one, a cancellation waits for its end.
        frames = [self._append(each, before) for each, before in changes]
        together = asyncio.gather(*frames, return_exceptions=True)
        try:
            ends = await asyncio.shield(together)
        except asyncio.CancelledError:
            # Until it is known what has become of them no claim may read the old clusters.
            await uncancellable(together)
            raise
        changed, failure = 0, None
        for each, end in zip(group, ends, strict=True):
            if end is None:
                changed += len(each.before)
                continue
            if not isinstance(end, StoreUnavailable):
                raise end
            failure = end
            if not isinstance(end, Unplaced):
                self._shard.journal.trouble.when_certain(partial(self._drop, each))
        return changed, failure

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
            shard.cluster_index.replaced(old.name, divided.changed, divided.rest)
            shard.cluster_index.replaced_up_to = sequence + len(before)
            # A frame has not room for everything: then the rest is looked at again.
            self._searched.update(each.name for each in (divided.changed if divided.more else made))
            for recipient in before:
                shard.observer.amended(at, recipient, why)

        return shard.journal.append(Kind.REPLACE, [head, divided.entries], len(before), at, placed)

    def _drop(self, divided: Divided) -> None:
        """What was made is no part of the queue, and never will be."""
        for state in (*divided.changed, *divided.rest):
            self._shard.deleter.remove(self._shard.queue_root / state.name)
