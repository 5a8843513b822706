"""Loading: records of clusters move into the journal, by a TAKE frame, so that they can be claimed.

The frame also moves the cluster's cursor behind them. A cluster that cannot be read is set aside, so that it
does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import BY_DUE, Area
from mqcd.core.queueing.turns import Places
from mqcd.disk.durable import describe
from mqcd.disk.uncancellable import in_thread, uncancellable
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.clusters.reading import Taken, entry_of
from mqcd.queue.format.frame import ALIVE, ENTRY_HEAD, IN_SPOOL, Entry, Kind, Mark, pack_entry, pack_take
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

RETRY_MS = 10_000
"""How long after a failure of the disk a read is tried again."""
LOADED_AT_ONCE = 250
"""Lines that one frame takes from a cluster: the loop places all of them in one turn."""
PASSED_AT_ONCE = 500
"""Recipients that one claim may pass over, or load without claiming them."""

Skip = Mapping[str, int]


def may_claim(shard: Shard) -> bool:
    """Whether verdicts could be recorded: without that nothing is tried."""
    return shard.ready and not (shard.ring.full or shard.journal.trouble.failing)


class Passing:
    """Which recipients a claim passes over, and how many it still may."""

    def __init__(self, shard: Shard, now: int, skip: Skip, places: Places | None = None) -> None:
        self._places = places
        self._waiting = shard.entries.waiting
        self._now = now
        self.skip = skip
        """Suspended domains, and until when, ms."""
        self.latest = shard.latest_due()
        self.left = PASSED_AT_ONCE

    def keep_half(self) -> None:
        """Hold back half of what a whole claim may pass over, for the side that comes second."""
        self.left -= PASSED_AT_ONCE // 2

    def return_half(self) -> None:
        """Make it available."""
        self.left += PASSED_AT_ONCE // 2

    def suspended(self, entry: JournalEntry) -> bool:
        """Whether its domain takes no mail now. Held mail comes when it was asked for, or at its end."""
        if entry.area is Area.HELD or self.skip.get(entry.domain, 0) <= self._now:
            return False
        return self._places is None or not self._places.passes(entry.tenant, entry.domain)

    def over(self, entry: JournalEntry) -> None:
        """An entry of a suspended domain waits in the domain's bucket."""
        self.left -= 1
        self._waiting.pass_over(entry, min(self.skip[entry.domain], self.latest), self._now)

    def wait(self, entry: JournalEntry) -> None:
        """A loaded entry that is not claimed waits for its time; its record is read again then."""
        self.left -= 1
        entry.raw = b""
        if entry.area not in (Area.HELD, Area.REMOVED):
            entry.due = min(entry.due, self.latest)
        self._waiting.add(entry)


class Loader:
    """Loads records for one claim."""

    def __init__(self, shard: Shard, now: int, passing: Passing) -> None:
        self._shard = shard
        self._now = now
        self._passing = passing

    async def load(self, name: str, room: int, found: list[JournalEntry]) -> bool:
        """Move records of a cluster into the journal and add at most `room` claimed entries to `found`.

        False when the journal takes nothing now.
        """
        shard = self._shard
        passes = self._passing.left if self._passing.skip else 0
        want = min(room + passes, LOADED_AT_ONCE, shard.journal.max_entries)
        # The other half is for the heads of the entries, and a long last line.
        most = shard.journal.frame_room // 2
        try:
            # A claim that is cancelled waits for the thread, or the next one would read beside it.
            read, cluster = shard.cluster_index.reader.read, shard.cluster_index.to_read(name)
            taken = await in_thread(shard.executor, read, *cluster, want, self._now, most)
            for find in taken.finds:
                await in_thread(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
        except (DecodeError, FileNotFoundError) as error:
            log.error("cluster %s cannot be read: %s; run `mqcd fsck`", name, error)
            shard.cluster_index.offers.set_aside(name)
            return True
        except OSError as error:
            log.error("cluster %s cannot be read and will be tried again: %s", name, describe(error))
            shard.cluster_index.offers.set_aside(name)
            shard.later(RETRY_MS, lambda: self._bring_back(name))
            return True
        before = shard.cluster_index.clusters[name]
        if not taken.lines and taken.state.cursor == before.cursor:
            # After a crash a cluster's due time may be that of records that were taken from it.
            shard.cluster_index.add(replace(before, due=taken.state.due))
            return True
        try:
            await self._move(taken, room, found)
        except StoreUnavailable:
            return False
        return True

    def _bring_back(self, name: str) -> None:
        """Offer a cluster again that could not be read."""
        shard = self._shard
        if (state := shard.cluster_index.clusters.get(name)) is not None:
            shard.cluster_index.add(state)
            shard.notify()

    async def _move(self, taken: Taken, room: int, found: list[JournalEntry]) -> None:
        shard, passing = self._shard, self._passing
        frame_entries = [Entry(Mark.TAKEN, ALIVE, 0, 0, IN_SPOOL, raw, b"") for raw, _ in taken.lines]
        parts = [pack_take(taken.head), *map(pack_entry, frame_entries)]

        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            shard.taken(taken)
            at = body + len(parts[0])
            left = room
            for raw, glance in taken.lines:
                entry = entry_of(glance)
                entry.raw = raw
                shard.entries.place(entry, segment, ordinal, at + ENTRY_HEAD, len(raw))
                early = entry.due > self._now and entry.area in BY_DUE
                if passing.suspended(entry) and not early:
                    passing.over(entry)
                elif early or cancelled or not left:
                    # An early one stood before a record that was expedited.
                    passing.wait(entry)
                else:
                    entry.on(Event.CLAIM)
                    found.append(entry)
                    left -= 1
                ordinal += 1
                at += ENTRY_HEAD + len(raw)

        cancelled = False
        durable = shard.journal.append(Kind.TAKE, parts, len(frame_entries), shard.clock.now(), placed)
        try:
            await asyncio.shield(durable)
        except asyncio.CancelledError:
            # The records move all the same: the cluster index must know before the next claim reads it.
            cancelled = True
            await uncancellable(durable)
            raise
