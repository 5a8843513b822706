"""What a start does about damage to the journal, so that nobody is tried again without being reported.

The stretches that do not check go to quarantine (`quarantine_damage`). What a lost frame may have done to
records that are still in the journal, `wal.live_entries` concludes. A lost TAKE frame concerns records of a
cluster as well, and `take_again` mends that:

A TAKE moves records of a cluster into the journal: those from the cluster's cursor up to its new one, without
a gap. When the frame is lost, the cursor is still the old one, and the lines seem to wait there. Later frames
show that they do not: these frames settle or begin some of the lines' recipients. A lost take reached at
least to the last line that a later frame mentions. So that line and all before it are taken again:

    line of the cluster    later frames say    it is
    1  (the cursor)        delivered           skipped: it has ended
    2                      nothing             taken: it may have been tried, so its outcome is unknown
    3                      deferred            skipped: that frame has its record
    4                      an attempt began    taken: its outcome is unknown
    5                      nothing             left in the cluster: nothing shows that it was taken

"Delivered" and "deferred" are in `LiveEntries.moved`, "an attempt began" in `LiveEntries.tried`. The new TAKE
marks what it takes as begun: a start that is cut off behind it needs the damage no more to know that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import describe
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.recovery.room import with_reserve
from mqcd.queue.requests.load import take
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.scan import Damage
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

TAKEN_AT_ONCE = 500
"""Records in one TAKE frame, at most."""
_ALL = 1 << 62
"""Whatever is due, and however much that is."""


async def quarantine_damage(shard: Shard, chain: Sequence[Segment], damage: Sequence[Damage]) -> None:
    """Copy damaged stretches to the quarantine. Raises OSError."""
    loop = asyncio.get_running_loop()
    await with_reserve(shard, lambda: loop.run_in_executor(shard.executor, _copy, shard, chain, damage))
    shard.figures.quarantined += len(damage)


def _copy(shard: Shard, chain: Sequence[Segment], damage: Sequence[Damage]) -> None:
    """Runs in a thread."""
    files = {segment.number: segment.fd for segment in chain}
    for stretch in damage:
        data = shard.disk.pread(files[stretch.segment], stretch.end - stretch.start, stretch.start)
        if stretch.start + len(data) < stretch.end:
            text = "%s ends at octet %d, and had %d: what was recorded there is lost"
            log.error(text, stretch.path, stretch.start + len(data), stretch.end)
        # At the journal's end it is mostly what was never written.
        data = data.rstrip(b"\0")
        name = f"segment-{stretch.segment}"
        to_quarantine(shard.disk, shard.queue_root, name, stretch.start, data, stretch.records)


async def take_again(shard: Shard, live: LiveEntries) -> list[JournalEntry]:
    """Take the lines of lost TAKE frames. Returns the entries that they make, whose outcome is unknown.

    To be called when the clusters have been placed. Raises OSError, StoreUnavailable.
    """
    begun: list[JournalEntry] = []
    if not (live.damage and (live.moved or live.tried)):
        return begun
    for name in [name for name, state in shard.cluster_index.clusters.items() if state.left]:
        left = await _count_lost(shard, live, name)
        while left > 0:
            lines, entries = await with_reserve(shard, partial(_take, shard, live, name, left))
            left -= lines
            begun += entries
    return begun


async def _count_lost(shard: Shard, live: LiveEntries, name: str) -> int:
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
    lost = max((at for at, key in enumerate(keys, 1) if key in live.moved or key in live.tried), default=0)
    if lost:
        log.error("%s: the frame that took its first %d records is lost", name, lost)
    return lost


async def _take(shard: Shard, live: LiveEntries, name: str, most: int) -> tuple[int, list[JournalEntry]]:
    """Take up to `most` records by one frame. Returns how many lines that were, also skipped ones, and the
    entries that the others make."""
    loop = asyncio.get_running_loop()
    want = min(most, TAKEN_AT_ONCE, shard.journal.max_entries)
    octets = shard.journal.frame_room // 2
    read, cluster = shard.cluster_index.reader.read, shard.cluster_index.to_read(name)
    taken = await loop.run_in_executor(shard.executor, read, *cluster, want, _ALL, octets)
    for find in taken.finds:
        await loop.run_in_executor(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
    kept = [pair for pair in taken.lines if (pair[1].spid, pair[1].qid) not in live.moved]
    entries: list[JournalEntry] = []
    await take(shard, replace(taken, lines=kept), entries.extend, begun=True)
    return len(taken.lines), entries
