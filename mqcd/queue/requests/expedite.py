"""Mail that waits is due at once: what `retry now` asks of the store.

Nothing is written for it. Due times change in memory, so a crash costs no more than the old due time; what an
evacuation moves meanwhile goes to its cluster with the new one. Entries are looked at in turns of bounded
length, clusters are read in a thread. Claims take all lines of a cluster up to its last selected one into the
journal, as they have room; those that were not selected wait there for their own time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import Enum, auto
from operator import attrgetter

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.core.ports import Expedited
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

MOST_DOMAINS = 10_000
"""Domains that are named; of more, it is only said that they are many."""
_WAITING = (Area.INCOMING, Area.DEFERRED)
_ALL = 1 << 62
_GLANCED = frozenset({"spid", "domain", "area", "age", "size"})
"""What of a condition an entry answers. Its due time may not be the record's."""


def _glance(path: str) -> Callable[[JournalEntry], object]:
    """Reads from an entry what a recipient has at a path."""
    name = path.rpartition(".")[2]
    return attrgetter(name) if name != "address" else lambda entry: f"@{entry.domain}"


class _Means(Enum):
    """How a selected entry becomes due."""

    NONE = auto()
    """It is due already."""
    ENTRY = auto()
    """By its own due time."""
    BUCKET = auto()
    """By the return of its domain's bucket."""
    CLUSTER = auto()
    """By the lines of the cluster that an evacuation is moving it to."""


class Expediting:
    """One request."""

    def __init__(self, shard: Shard, selection: Selection, dry_run: bool) -> None:
        self._shard = shard
        self._selection = selection
        self._chosen = chooser(selection)
        # What an entry says without its record being read.
        self._glanced = replace(selection, sender=None, recipient="", unknowns=0, where=None)
        where = selection.where
        self._likely = where.on_some(_GLANCED, _glance) if where is not None else None
        self._dry_run = dry_run
        self._now = shard.clock.now()
        self._left = _ALL if selection.limit is None else selection.limit
        self._matched = self._changed = 0
        self._domains: set[str] = set()
        self._many = selection.everything

    async def run(self) -> Expedited:
        """Do it. Raises StoreUnavailable."""
        with self._shard.cluster_index.noting_divisions() as heirs:
            await self._look_everywhere(heirs)
        if not self._dry_run:
            self._shard.notify()
        domains = None if self._many else frozenset(self._domains)
        return Expedited(matched=self._matched, changed=self._changed, domains=domains)

    async def _look_everywhere(self, heirs: Mapping[str, Collection[str]]) -> None:
        """`heirs`: what has taken the place of clusters that a batch has divided meanwhile."""
        shard = self._shard
        # What is evacuated from now on is met in the journal, and must not be counted a second time.
        names = set(shard.cluster_index.clusters)
        for segment in [each for each in shard.ring if not each.retired]:
            # Entries that became lines of a cluster between two slices would be found in neither.
            async with shard.retiring:
                if segment.retired:
                    names |= shard.cluster_index.of_segment(segment.number)
                else:
                    await self._look_through(segment)
        waiting, seen = list(names), set(names)
        while waiting:
            name = waiting.pop()
            if not await self._look_into(name, heirs):
                waiting += [each for each in heirs[name] if each not in seen]
                seen.update(heirs[name])

    async def _look_through(self, segment: Segment) -> None:
        moving = False
        async for part in slices(tuple(segment.entries.values())):
            for entry in part:
                means = await self._means(entry)
                if means is None:
                    continue
                self._count(1, means is not _Means.NONE, {entry.domain})
                moving |= means is _Means.CLUSTER
                if not self._dry_run:
                    self._make_due(entry, means)
        if moving and not self._dry_run:
            self._shard.cluster_index.expedite_moved(segment, self._chosen, self._now)

    async def _means(self, entry: JournalEntry) -> _Means | None:
        """How the entry becomes due; None when it is not selected. Changes nothing."""
        if not self._left or not await self._matches(entry):
            return None
        # An entry may have been claimed or frozen while its record was read.
        if entry.state is State.PASSED_OVER:
            return _Means.BUCKET
        if entry.resting:
            return _Means.ENTRY if entry.due > self._now else _Means.NONE
        if entry.state is State.FROZEN and self._selection.limit is None:
            return _Means.CLUSTER if entry.due > self._now else _Means.NONE
        return None

    def _make_due(self, entry: JournalEntry, means: _Means) -> None:
        if means is _Means.BUCKET:
            # With all others of its domain, which wait for their destination alone.
            self._shard.entries.waiting.recall(entry.domain, self._now)
        elif means is _Means.ENTRY:
            entry.due = self._now
            self._shard.entries.waiting.add(entry)

    async def _matches(self, entry: JournalEntry) -> bool:
        if entry.area not in _WAITING:
            return False
        # An operator's next hop stands there, as host:port, and says nothing of the domain.
        routed = ":" in entry.domain and not entry.domain.startswith("[")
        address = f"@{entry.domain}"
        if not routed and not self._glanced.admits(entry.area, entry.spid, "", address, entry.received):
            return False
        if not routed and self._likely is not None and not self._likely(entry):
            return False
        if self._chosen is None or (self._glanced == self._selection and not routed):
            return True
        try:
            return self._chosen(record.verify(await self._shard.raw_line(entry)))
        except (OSError, DecodeError) as error:
            log.error("a record of %016X was left out of a retry: %s", entry.spid, error)
            return False

    async def _look_into(self, name: str, heirs: Container[str]) -> bool:
        """False when it has been divided before it was looked through."""
        shard = self._shard
        state = shard.cluster_index.clusters.get(name)
        if name in heirs:
            return False
        if state is None or not state.left or state.area not in _WAITING or not self._left:
            return True
        try:
            found = await in_thread(
                shard.executor, shard.cluster_index.reader.look, state, self._chosen, self._now, self._left
            )
        except (OSError, DecodeError) as error:
            if name not in shard.cluster_index.clusters:
                return name not in heirs
            text = describe(error) if isinstance(error, OSError) else str(error)
            log.error("cluster %s was left out of a retry: %s; run `mqcd fsck`", name, text)
            return True
        if name in heirs:
            return False
        self._count(found.matched, found.later, found.domains)
        if not self._dry_run and found.later:
            shard.cluster_index.expedite(name, self._chosen, self._now, found.end)
        return True

    def _count(self, matched: int, later: int, domains: AbstractSet[str]) -> None:
        self._matched += matched
        self._changed += later
        self._left -= matched
        if not self._many:
            self._domains |= domains
            self._many = len(self._domains) > MOST_DOMAINS
