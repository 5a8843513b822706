"""Picks what a batch applies to: claims all selected recipients, wherever their records are, some at a time.

Entries of the journal are claimed where they are. Of a cluster the helper makes two, the selected lines and
the others, which one MANIFEST edit puts in its place; those with selected lines are then loaded whole. So the
loop's work grows with what is selected and not with the queue, and no moment differs from any other: until it
is loaded a record is in one cluster or in the other.

A recipient in flight is passed over, and counted. What claims load meanwhile is looked for once more at the
end, among the entries that are newer than the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Batch, Recipient
from mqcd.core.ports import Picked
from mqcd.core.queueing.amendment import APPLIES_TO, applies
from mqcd.core.selecting.pattern import fits
from mqcd.core.selecting.selection import Selection
from mqcd.disk.uncancellable import uncancellable
from mqcd.queue.clusters.file import queue_of
from mqcd.queue.format import record
from mqcd.queue.helper.divide import Divide, Divided, Divisions
from mqcd.queue.manifest.log import ClusterState, Edit
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.requests.claim import Claims
from mqcd.queue.requests.load import may_claim
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

AT_ONCE = 250
"""Entries of the journal that are claimed together."""
_CLUSTERS = 16
"""Clusters that one task of the helper divides: they are read again if it dies."""
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
        self._chosen = record.chooser(selection)
        self._areas = APPLIES_TO[batch.action]
        self._left = _ALL if selection.limit is None else selection.limit
        self._room = asyncio.Event()
        self._seen: set[str] = set()
        """Clusters that need not be read (again)."""
        self._passed: set[tuple[int, int]] = set()
        """Recipients that were in flight."""
        self._frozen: list[Segment] = []
        """Segments that were being evacuated, with selected entries."""

    async def run(self) -> AsyncGenerator[Picked, None]:
        """All that is selected; the caller settles or parks each part before it asks for the next.

        Raises StoreUnavailable.
        """
        shard = self._shard
        await shard.tidy.wait()
        shard.watchers.append(self._room.set)
        try:
            newest = max((segment.number for segment in shard.ring), default=0)
            segments = list(shard.ring)
            while segments:
                async with aclosing(self._from_journal(segments)) as parts:
                    async for part in parts:
                        yield part
                segments = await self._thawed()
            while self._left and (names := self._unseen()):
                self._seen.update(names)
                async with aclosing(self._from_clusters(names)) as parts:
                    async for part in parts:
                        yield part
            recent = [segment for segment in shard.ring if segment.number >= newest]
            async with aclosing(self._from_journal(recent)) as parts:
                async for part in parts:
                    yield part
        finally:
            shard.watchers.remove(self._room.set)

    # ------------------------------------------------------------ the journal

    async def _thawed(self) -> list[Segment]:
        """Wait for evacuations that have frozen selected entries: they are in clusters then, or, when it has
        failed, wait again in these segments."""
        frozen, self._frozen = self._frozen, []
        thawed = []
        for segment in frozen:
            while not segment.retired and any(e.state is State.FROZEN for e in segment.entries.values()):
                self._room.clear()
                await self._room.wait()
            if not segment.retired:
                thawed.append(segment)
        return thawed

    async def _from_journal(self, segments: Sequence[Segment]) -> AsyncGenerator[Picked, None]:
        for segment in segments:
            selected = await self._selected(segment)
            while selected and self._left:
                part = selected[-AT_ONCE:]
                del selected[-AT_ONCE:]
                busy = {(each.spid, each.qid) for each in part if each.state in _IN_FLIGHT} - self._passed
                self._passed |= busy
                if segment not in self._frozen and any(each.state is State.FROZEN for each in part):
                    self._frozen.append(segment)
                yield self._part(await self._claims.entries(part), len(busy))

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

    def _part(self, found: Sequence[Recipient], in_flight: int = 0) -> Picked:
        """Of what is claimed, what the batch applies to: a record may have changed since it was looked at."""
        chosen = [each for each in found if applies(each, self._batch)][: self._left]
        if len(chosen) < len(found):
            keys = {each.key for each in chosen}
            self._claims.give_back([each for each in found if each.key not in keys])
        self._left -= len(chosen)
        return Picked(recipients=chosen, in_flight=in_flight)

    # ------------------------------------------------------------ clusters

    def _unseen(self) -> list[str]:
        """Some clusters that may hold selected records."""
        names = []
        for state in self._shard.cluster_index.clusters.values():
            if state.left and state.name not in self._seen and self._may_hold(state):
                names.append(state.name)
                if len(names) == _CLUSTERS:
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
        index = self._shard.cluster_index
        chosen: list[str] = []
        await self._claims.reserve(names)
        try:
            divided = await self._divide([index.clusters[name] for name in names])
            chosen = [state.name for each in divided for state in each.chosen]
            index.give_back([name for name in names if name not in chosen])
            for name in chosen:
                if not self._left:
                    break
                async with aclosing(self._load(name)) as parts:
                    async for part in parts:
                        yield part
        finally:
            index.give_back([*names, *chosen])
            self._shard.notify()

    async def _divide(self, states: Sequence[ClusterState]) -> Sequence[Divided]:
        shard, settings = self._shard, self._shard.options.settings
        task = Divide(
            queue_root=shard.queue_root,
            clusters=[state for state in states if state.left],
            selection=self._selection,
            batch=self._batch,
            first=shard.manifest.state.epoch * _RUN + shard.divisions,
            max_cluster=settings.maxclustersize,
            granularity=settings.retry_granularity,
        )
        done = cast("Divisions", await shard.helper.run(task))
        for text in done.unread:
            log.error("batch %s leaves out a cluster: %s; run `mqcd fsck`", self._batch.id, text)
        cut = [each for each in done.divided if each.rest]
        made = [state for each in cut for state in (*each.chosen, *each.rest)]
        shard.divisions += len(made)
        if cut:
            replacing = asyncio.ensure_future(self._replace(cut, made))
            try:
                await asyncio.shield(replacing)
            except asyncio.CancelledError:
                # Memory follows the edit, also when the caller has been cancelled.
                await uncancellable(replacing)
                raise
        return done.divided

    async def _replace(self, cut: Sequence[Divided], made: Sequence[ClusterState]) -> None:
        """The new clusters instead of the old ones: one edit. Raises StoreUnavailable."""
        shard, index = self._shard, self._shard.cluster_index
        names = tuple(each.name for each in cut)
        try:
            # An evacuation's edit may hold states that were read before this one.
            async with shard.retiring:
                await shard.editing.commit(Edit(add=tuple(made), end=names))
        except OSError as error:
            # Until the disk says whether the edit happened, the records may be in either.
            await shard.editing.certain(bool)
            raise StoreUnavailable(f"the queue cannot be changed: {error}") from error
        self._seen.update(state.name for state in made)
        index.reserve([state.name for each in cut for state in each.chosen])
        for each in cut:
            index.divided(each.name, (*each.chosen, *each.rest))
        for name in names:
            shard.deleter.remove(shard.queue_root / name)

    async def _load(self, name: str) -> AsyncGenerator[Picked, None]:
        index = self._shard.cluster_index
        while self._left and (state := index.clusters.get(name)) is not None and state.left:
            while not may_claim(self._shard):
                self._room.clear()
                await self._room.wait()
            before = state.cursor
            found = await self._claims.cluster(name)
            if found:
                yield self._part(found)
            elif (after := index.clusters.get(name)) is None or after.cursor == before:
                return
