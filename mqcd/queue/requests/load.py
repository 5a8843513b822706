"""Loads records of clusters for a claim: they move into the journal, for only there they can be in flight.

A load reads lines from a cluster's cursor on, in a thread. One TAKE frame has these lines and the cluster's
new cursor; when it is durable, each line is an entry: claimed, passed over, or waiting for a later claim.
What does not check of them goes to quarantine before. What a load leaves:

| exit | cluster | records that were read |
|---|---|---|
| the frame is durable | begins behind them | entries |
| the same, but the claim was cancelled | the same: it waits for the frame | entries that wait |
| the journal takes nothing (False) | as it was | as they were |
| the cluster is missing, or none of it can be read | offered no more until the next start | as they were |
| its disk fails, or that of the quarantine | offered no more for `RETRY_MS` | as they were |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread, uncancellable
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.clusters.reading import Taken, entry_of
from mqcd.queue.format.frame import (
    ALIVE,
    BEGUN,
    ENTRY_HEAD,
    IN_SPOOL,
    Entry,
    Kind,
    Mark,
    pack_entry,
    pack_take,
)
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.passing import Passing
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

RETRY_MS = 10_000
"""How long after a failure of the disk a read is tried again."""
LOADED_AT_ONCE = 250
"""Lines that one frame takes from a cluster: the loop places all of them in one turn."""


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
            taken = await self._read(name, want, most)
            if taken is None:
                return True
            for find in taken.finds:
                await in_thread(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
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

    async def _read(self, name: str, want: int, most: int) -> Taken | None:
        """What a load would move; None, and the cluster is set aside, when it is missing or none of it can be
        read. Raises OSError."""
        shard = self._shard
        read, cluster = shard.cluster_index.reader.read, shard.cluster_index.to_read(name)
        try:
            # A claim that is cancelled waits for the thread, or the next one would read beside it.
            return await in_thread(shard.executor, read, *cluster, want, self._now, most)
        except (DecodeError, FileNotFoundError) as error:
            log.error("cluster %s cannot be read: %s; run `mqcd fsck`", name, error)
            shard.cluster_index.offers.set_aside(name)
            return None

    def _bring_back(self, name: str) -> None:
        """Offer a cluster again that could not be read."""
        self._shard.cluster_index.offers.bring_back(name)
        self._shard.notify()

    async def _move(self, taken: Taken, room: int, found: list[JournalEntry]) -> None:
        passing = self._passing
        # Looked at when the records are here, which a cancelled claim waits for.
        cancelled = False

        def arrived(entries: Sequence[JournalEntry]) -> None:
            left = room
            for entry, (raw, _) in zip(entries, taken.lines, strict=True):
                entry.raw = raw
                if until := passing.suspended_until(entry):
                    passing.over(entry, until)
                elif cancelled or not left:
                    passing.wait(entry)
                else:
                    entry.on(Event.CLAIM)
                    found.append(entry)
                    left -= 1

        durable = take(self._shard, taken, arrived)
        try:
            await asyncio.shield(durable)
        except asyncio.CancelledError:
            # The records move all the same: the cluster index must know before the next claim reads it.
            cancelled = True
            await uncancellable(durable)
            raise


def take(
    shard: Shard, taken: Taken, arrived: Callable[[Sequence[JournalEntry]], None], *, begun: bool = False
) -> asyncio.Future[None]:
    """Write a TAKE frame. When it is durable, its lines are entries, and `arrived` is called with these.
    `begun`: it takes the place of a lost one, and attempts of theirs may have begun."""
    flags = ALIVE | (BEGUN if begun else 0)
    parts = [pack_take(taken.head)]
    parts += [pack_entry(Entry(Mark.TAKEN, flags, 0, 0, IN_SPOOL, raw)) for raw, _ in taken.lines]

    def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
        state, before = taken.state, shard.cluster_index.clusters[taken.state.name]
        shard.entries.accounts.take(before.area, before.left - state.left, before.octets - state.octets)
        shard.cluster_index.advance(state)
        shard.figures.quarantined += taken.bad
        at = body + len(parts[0]) + ENTRY_HEAD
        entries = [entry_of(glance) for _, glance in taken.lines]
        for entry, (raw, _) in zip(entries, taken.lines, strict=True):
            entry.begun = begun
            shard.entries.place(entry, segment, ordinal, at, len(raw))
            ordinal += 1
            at += len(raw) + ENTRY_HEAD
        arrived(entries)

    return shard.journal.append(Kind.TAKE, parts, len(taken.lines), shard.clock.now(), placed, again=begun)
