"""Picks what a batch applies to, wherever the records are, some at a time.

A search goes through the journal, then through the clusters. Entries are claimed where they are, and the
caller settles them; records in clusters stay there, and other clusters take their place (`replace`). Two
searches are made, because records move meanwhile. All of these are selected:

    record   at the start                meanwhile                    is picked
    A        journal, waits              nothing                      by search 1, in the journal
    B        journal, in flight          nothing                      not: it is named, once
    C        journal, waits              its segment is evacuated     by search 1, in its new cluster
    D        journal, being evacuated    that is committed            by search 1, in its new cluster
    E        journal, being evacuated    that fails                   by search 1, which searches again
    F        cluster                     nothing                      by search 1, in the cluster
    G        cluster                     a claim loads and parks it   by search 2, in the journal

Search 2 goes through the segments from the one on that was the newest at the start, because frames go to no
older one; through those with records that search 1 could not read; and through clusters that it has not met.
A record that moves twice during it may be missed. What lasts over both is in `Progress`.

What becomes of a selected entry, by its state when its part's turn comes:

| entry | is |
|---|---|
| rests | claimed, and picked if it is selected still and the limit allows it; else given back |
| rests, cannot be read | put off, and looked for again by search 2, which logs what it leaves out |
| in flight | named, once |
| frozen | looked for again: in its segment if the evacuation fails, else in clusters |
| evacuated | looked for in clusters |
| ended | in the queue no more |

What an exit leaves, beside the parts that were yielded (the caller settles or parks the last one):

| exit | the rest of what is selected |
|---|---|
| the end, or `limit` | in flight, left out, or beyond the limit |
| StoreUnavailable: a frame has failed, or the helper has no room | as it was |
| closed or cancelled | as it was, but for what frames under way change: it waits for them |

No exit leaves a record half changed, another entry claimed, or a cluster that claims are not offered.

Between two parts it rests while mail is in flight, so that a batch takes a part of the time alone. What
else it meets of claims and evacuations: docs/internals.md, "What may run at the same time".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Batch
from mqcd.core.ports import Picked
from mqcd.core.queueing.amendment import APPLIES_TO, applies
from mqcd.core.selecting.pattern import fits
from mqcd.core.selecting.selection import Selection
from mqcd.queue.clusters.file import queue_of
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from mqcd.queue.helper.divide import Divided
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.requests.claim import Claims
from mqcd.queue.requests.replace import Replacing
from mqcd.queue.wal.entry_states import IN_FLIGHT, State
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

SEARCHES = 2
"""The second one finds what has moved during the first. Frames go to the newest segment, or to later ones."""
AT_ONCE = 250
"""Entries of the journal that are claimed together."""
RESTS = 4
"""The loop does all of the work on entries of the journal: so it takes a fifth of the time beside mail."""
RESTS_OF_CLUSTERS = 2
"""The loop does little of the work on clusters: helper and disk are what mail would have to wait for."""
MOST_REST_MS = 10_000
_OCTETS = 8 << 20
"""Size of the clusters that one task of the helper divides: it holds them in memory."""
_ALL = 1 << 62
_GONE = frozenset((State.ENDED, State.EVACUATED))


class Progress:
    """What lasts over both searches of a request. Pure.

    Invariant of search 1, unless `left` is 0: each selected record has been picked, is in `in_flight`, or can
    still be met, by a row of this table or in a segment that this search has before it, or whose entries it
    waits for (`evacuating`).

    | field | a record can still be met | who changes the field |
    |---|---|---|
    | `_met` | in a cluster that it does not name | `meet` and `replaced` add |
    | `_newest` | by search 2, in a segment of this number or a higher one | `begin` sets it |
    | `unread` | by search 2, in the segment of any entry in it | `begin` empties it |
    | | | `Picking._matches` takes one out that it reads, and adds it if that fails |
    | | | `Picking._pick` adds what `Claims.entries` cannot hand out |
    | `in_flight` | | `name` adds |
    | `left` | | `Picking._pick` and `replaced` take off what they have picked |
    """

    __slots__ = ("_met", "_newest", "in_flight", "left", "unread")

    def __init__(self, limit: int | None) -> None:
        self.left = _ALL if limit is None else limit
        """How many more may be picked."""
        self.in_flight: set[tuple[int, int]] = set()
        """Selected recipients that were in flight and are named."""
        self._met: set[str] = set()
        """Clusters that were searched, and new ones in their place with nothing more that is selected."""
        self.unread: set[JournalEntry] = set()
        """What this search could not read or claim and that may be selected."""
        self._newest = 0
        """Number of the newest segment when the last search began."""

    def begin(self, ring: Iterable[Segment]) -> list[Segment]:
        """The segments of the next search, which begins now."""
        again = {entry.segment for entry in self.unread}
        self.unread.clear()
        segments = [each for each in ring if each.number >= self._newest or each in again]
        self._newest = max((each.number for each in segments), default=0)
        return segments

    def name(self, part: Iterable[JournalEntry]) -> set[tuple[int, int]]:
        """The recipients of a part that are in flight, and were not named before."""
        busy = {(each.spid, each.qid) for each in part if each.state in IN_FLIGHT} - self.in_flight
        self.in_flight |= busy
        return busy

    def meet(self, states: Iterable[ClusterState], may_hold: Callable[[ClusterState], bool]) -> list[str]:
        """Some of these clusters that may hold selected records and that no search has met. One does now."""
        names, octets = [], 0
        for state in states:
            if state.left and state.name not in self._met and may_hold(state):
                names.append(state.name)
                octets += state.size
                if octets >= _OCTETS:
                    break
        self._met.update(names)
        return names

    def replaced(self, divided: Iterable[Divided]) -> int:
        """Others are in the place of clusters; returns how many recipients that has changed."""
        changed = 0
        for each in divided:
            changed += len(each.before)
            # A frame has not room for everything: then the rest is looked at again.
            met = each.changed if each.more else (*each.changed, *each.rest)
            self._met.update(state.name for state in met)
        self.left -= changed
        return changed

    def left_out(self) -> list[JournalEntry]:
        """What the last search could not read; what has got to a cluster since was searched there."""
        return [each for each in self.unread if self.left and each.state not in _GONE]


class Picking:
    """One request."""

    def __init__(self, shard: Shard, claims: Claims, selection: Selection, batch: Batch) -> None:
        self._shard = shard
        self._claims = claims
        self._selection = selection
        self._batch = batch
        self._chosen = chooser(selection)
        self._areas = APPLIES_TO[batch.action]
        self._progress = Progress(selection.limit)
        self._changed = asyncio.Event()
        """Set whenever something may have become claimable, or an evacuation has ended."""
        self._replacing = Replacing(shard, claims, selection, batch, self._until)

    async def run(self) -> AsyncGenerator[Picked, None]:
        """All that is selected; the caller settles or parks each part before it asks for the next.

        Raises StoreUnavailable.
        """
        shard = self._shard
        # It writes clusters: not before a start has removed the unlisted ones of the last run.
        await shard.tidy.wait()
        async with shard.picking:
            shard.watchers.append(self._changed.set)
            try:
                for search in (self._journal, self._clusters) * SEARCHES:
                    async with aclosing(search()) as parts:
                        async for part in parts:
                            yield part
                for entry in self._progress.left_out():
                    log.error("batch %s leaves out recipient %s", self._batch.id, entry)
            finally:
                shard.watchers.remove(self._changed.set)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until that holds, which `Shard.notify` announces. Raises StoreUnavailable if it never may."""
        while not holds():
            if self._shard.journal.broken:
                raise StoreUnavailable(self._shard.journal.broken)
            self._changed.clear()
            await self._changed.wait()

    async def _yield_to_mail(self, begun: int, times: int) -> None:
        """While mail is in flight, rest so many times as long as the work since `begun` took, ms.

        What took long has waited for a disk or for room: there is a longest rest.
        """
        took = self._shard.clock.monotonic() - begun
        if took and self._shard.entries.active:
            await self._shard.clock.sleep(min(took * times, MOST_REST_MS))

    # ------------------------------------------------------------ the journal

    async def _journal(self) -> AsyncGenerator[Picked, None]:
        """What is in the segments of this search. Where an evacuation fails, they are searched again."""
        progress = self._progress
        segments = progress.begin(self._shard.ring)
        while segments and progress.left:
            evacuating: list[Segment] = []
            for segment in segments:
                selected = await self._selected(segment)
                while selected and progress.left:
                    part = selected[-AT_ONCE:]
                    del selected[-AT_ONCE:]
                    # No await from here until `Claims.entries` has claimed: what is frozen then is so now.
                    if segment not in evacuating and any(each.state is State.FROZEN for each in part):
                        evacuating.append(segment)
                    begun = self._shard.clock.monotonic()
                    yield await self._pick(part)
                    await self._yield_to_mail(begun, RESTS)
            segments = await self._failed(evacuating)

    async def _failed(self, evacuating: Sequence[Segment]) -> list[Segment]:
        """Wait for these evacuations. The segments of failed ones: the rest is in clusters."""
        for segment in evacuating:
            await self._until(partial(_evacuation_ended, segment))
        return [segment for segment in evacuating if not segment.retired]

    async def _selected(self, segment: Segment) -> list[JournalEntry]:
        """Entries of a segment that are selected. What is evacuated meanwhile is met in its clusters."""
        return [
            entry
            async for part in slices(tuple(segment.entries.values()))
            for entry in part
            if entry.area in self._areas and await self._matches(entry)
        ]

    async def _matches(self, entry: JournalEntry) -> bool:
        unread = self._progress.unread
        unread.discard(entry)
        try:
            text = record.verify(await self._shard.raw_line(entry))
            return (self._chosen is None or self._chosen(text)) and applies(record.parse(text), self._batch)
        except (OSError, DecodeError) as error:
            # The file of one that has gone meanwhile may serve another segment.
            if entry.state not in _GONE:
                log.error("batch %s cannot read recipient %s: %s", self._batch.id, entry, error)
                unread.add(entry)
            return False

    async def _pick(self, part: Sequence[JournalEntry]) -> Picked:
        """Name what is in flight of these, and claim all that rests, in one turn of the loop."""
        busy = self._progress.name(part)
        found, failed = await self._claims.entries(part)
        self._progress.unread.update(failed)
        # A record may have changed since it was looked at.
        still = [each for each in found if self._selection.matches(each) and applies(each, self._batch)]
        chosen = still[: self._progress.left]
        if len(chosen) < len(found):
            keys = {each.key for each in chosen}
            self._claims.give_back([each for each in found if each.key not in keys])
        self._progress.left -= len(chosen)
        return Picked(recipients=chosen, in_flight=busy)

    # ------------------------------------------------------------ clusters

    async def _clusters(self) -> AsyncGenerator[Picked, None]:
        """What is in clusters that no search has gone through."""
        progress = self._progress
        states = self._shard.cluster_index.clusters
        while progress.left and (names := progress.meet(states.values(), self._may_hold)):
            begun = self._shard.clock.monotonic()
            async with aclosing(self._replacing.run(names, progress.left)) as parts:
                async for divided in parts:
                    yield Picked(changed=progress.replaced(divided))
            await self._yield_to_mail(begun, RESTS_OF_CLUSTERS)

    def _may_hold(self, state: ClusterState) -> bool:
        selection = self._selection
        if state.area not in self._areas or selection.area not in (None, state.area):
            return False
        held_for = queue_of(state.name)
        # The queue of a next hop that an operator chose has recipients of any domain.
        return not (held_for and selection.domain and ":" not in held_for) or fits(selection.domain, held_for)


def _evacuation_ended(segment: Segment) -> bool:
    return segment.retired or all(each.state is not State.FROZEN for each in segment.entries.values())
