"""What lost TAKE frames had moved out of clusters, after damage to the journal.

A TAKE frame moves records of a cluster into the journal: those from the cluster's cursor up to its new one,
without a gap. When the frame is lost, the cursor is still the old one, and the lines seem to wait there.
Later frames show that they do not: these frames settle or begin some of the lines' recipients. A lost take
reached at least to the last line that a later frame mentions. So that line and all before it are taken here
again:

    line of the cluster    later frames say    it is
    1  (the cursor)        delivered           skipped: it has ended
    2                      nothing             taken: it may have been tried, so its outcome is unknown
    3                      deferred            skipped: that frame has its record
    4                      an attempt began    taken: its outcome is unknown
    5                      nothing             left in the cluster: nothing shows that it was taken
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import describe
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.clusters.reading import entry_of
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
from mqcd.queue.format.record import Glance
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.recovery.retry import with_reserve
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

_ALL = 1 << 62
"""Whatever is due, and however much that is."""
_BATCH = 500
"""Lines in one TAKE frame."""


async def salvage(shard: Shard, replay: LiveEntries) -> list[JournalEntry]:
    """Take such lines. Returns the entries that they make, whose outcome is unknown.

    Raises OSError, StoreUnavailable.
    """
    unknown: list[JournalEntry] = []
    if not (replay.damage and (replay.moved or replay.tried)):
        return unknown
    for name in [name for name, state in shard.cluster_index.clusters.items() if state.left]:
        left = await _count_lost(shard, replay, name)
        while left > 0:
            lines, entries = await with_reserve(shard, partial(_take, shard, replay, name, left))
            left -= lines
            unknown += entries
    return unknown


async def _count_lost(shard: Shard, replay: LiveEntries, name: str) -> int:
    """How many records from the cluster's cursor on have been taken, as later frames show."""
    index = shard.cluster_index
    read = partial(index.reader.read, *index.to_read(name), _ALL, _ALL, _ALL)
    try:
        taken = await asyncio.get_running_loop().run_in_executor(shard.executor, read)
    except (DecodeError, OSError) as error:
        # Claims meet the same later.
        why = describe(error) if isinstance(error, OSError) else error
        log.error("cluster %s cannot be searched for what was taken: %s", name, why)
        return 0
    keys = [(glance.spid, glance.qid) for _, glance in taken.lines]
    lost = max(
        (at for at, key in enumerate(keys, 1) if key in replay.moved or key in replay.tried), default=0
    )
    if lost:
        log.error("%s: the frame that took its first %d records is lost", name, lost)
    return lost


async def _take(shard: Shard, replay: LiveEntries, name: str, most: int) -> tuple[int, list[JournalEntry]]:
    """Take up to `most` records by one frame. Returns how many, and the entries that they make."""
    loop = asyncio.get_running_loop()
    want = min(most, _BATCH, shard.journal.max_entries)
    octets = shard.journal.frame_room // 2
    read, cluster = shard.cluster_index.reader.read, shard.cluster_index.to_read(name)
    taken = await loop.run_in_executor(shard.executor, read, *cluster, want, _ALL, octets)
    for find in taken.finds:
        await loop.run_in_executor(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
    kept = [pair for pair in taken.lines if (pair[1].spid, pair[1].qid) not in replay.moved]
    entries = [_begun(shard, glance) for _, glance in kept]
    parts = [pack_take(taken.head)]
    parts += [pack_entry(Entry(Mark.TAKEN, ALIVE | BEGUN, 0, 0, IN_SPOOL, raw)) for raw, _ in kept]

    def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
        shard.taken(taken)
        at = body + len(parts[0])
        for number, (entry, (raw, _)) in enumerate(zip(entries, kept, strict=True)):
            shard.entries.place(entry, segment, ordinal + number, at + ENTRY_HEAD, len(raw))
            at += ENTRY_HEAD + len(raw)

    await shard.journal.append(Kind.TAKE, parts, len(kept), shard.clock.now(), placed)
    return len(taken.lines), entries


def _begun(shard: Shard, glance: Glance) -> JournalEntry:
    """The entry of a line whose recipient may have been tried."""
    entry = entry_of(glance)
    entry.begun = True
    entry.due = min(entry.due, shard.latest_due())
    return entry
