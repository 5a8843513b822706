"""What lost TAKE frames had moved out of clusters, after damage to the journal.

A frame that is lost may have taken records from a cluster. Their lines still stand behind its cursor, and
later frames mention some of them: they were tried, deferred, delivered. If such a line were claimed again,
its recipient would be tried again, unreported. A take moves all lines from the cursor on, so every
line up to the last one that a later frame mentions has been taken: of lines that moved on, that frame
knows the home or the end; the others are taken here, as attempts whose outcome is unknown.
"""

from __future__ import annotations

import asyncio
import logging

from mqcd.core.errors import DecodeError
from mqcd.disk.durable import describe
from mqcd.queue.clusters.index import Taken, entry_of
from mqcd.queue.clusters.quarantine import to_quarantine
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
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

_ALL = 1 << 62
"""Whatever is due, and however much that is."""
_BATCH = 500
"""Lines in one TAKE frame."""


async def salvage(shard: Shard, replay: LiveEntries, doubtful: list[JournalEntry]) -> None:
    """Take such lines; `doubtful` grows by the recipients whose outcome is unknown. What it has done before
    it fails need not be done again. Raises OSError, StoreUnavailable."""
    if not (replay.damage and (replay.moved or replay.tried)):
        return
    for name in [name for name, state in shard.cluster_index.clusters.items() if state.left]:
        try:
            lost = await asyncio.get_running_loop().run_in_executor(
                shard.executor, _lost_lines, shard, replay, name
            )
        except (DecodeError, OSError) as error:
            # Claims meet the same later.
            log.error("cluster %s cannot be searched for what was taken: %s", name, _why(error))
            continue
        if lost:
            log.error("%s: the frame that took its first %d records is lost", name, lost)
        while lost > 0:
            lost -= await _take(shard, replay, name, lost, doubtful)


def _why(error: DecodeError | OSError) -> str:
    return describe(error) if isinstance(error, OSError) else str(error)


def _lost_lines(shard: Shard, replay: LiveEntries, name: str) -> int:
    """How many records from the cluster's cursor on have been taken, as later frames show."""
    taken = shard.cluster_index.read(name, _ALL, _ALL, _ALL)
    keys = [(glance.spid, glance.qid) for _, glance in taken.lines]
    return max(
        (at for at, key in enumerate(keys, 1) if key in replay.moved or key in replay.tried), default=0
    )


async def _take(shard: Shard, replay: LiveEntries, name: str, room: int, doubtful: list[JournalEntry]) -> int:
    """Take up to `room` records by one frame; gives how many those are."""
    loop = asyncio.get_running_loop()
    want = min(room, _BATCH, shard.journal.max_entries)
    most = shard.journal.frame_room // 2
    taken = await loop.run_in_executor(shard.executor, shard.cluster_index.read, name, want, _ALL, most)
    for find in taken.finds:
        await loop.run_in_executor(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
    kept = [pair for pair in taken.lines if (pair[1].spid, pair[1].qid) not in replay.moved]
    parts = [pack_take(taken.head)]
    parts += [pack_entry(Entry(Mark.TAKEN, ALIVE | BEGUN, 0, 0, IN_SPOOL, raw)) for raw, _ in kept]

    def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
        _account(shard, taken)
        at = body + len(parts[0])
        for number, (raw, glance) in enumerate(kept):
            entry = entry_of(glance)
            entry.begun = True
            entry.due = min(entry.due, shard.latest_due())
            shard.place(entry, segment, ordinal + number, at + ENTRY_HEAD, len(raw))
            doubtful.append(entry)
            at += ENTRY_HEAD + len(raw)

    await shard.journal.append(Kind.TAKE, parts, len(kept), shard.clock.now(), placed)
    return len(taken.lines)


def _account(shard: Shard, taken: Taken) -> None:
    before = shard.cluster_index.clusters[taken.state.name]
    shard.accounts.take(before.area, before.left - taken.state.left, before.octets - taken.state.octets)
    shard.cluster_index.advance(taken.state)
    shard.figures.quarantined += taken.bad
