"""Step R3: replays the journal of earlier runs while new mail is accepted.

A thread reads the segments of the earlier runs, of which nothing changes meanwhile; the event loop takes
in what it found, some at a time. Attempts that a crash cut off are recorded as outcome-unknown. Until all
of that is done nothing may be claimed, exported or evacuated. Every step can be repeated by the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.queue.clusters.file import check_version
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.memory.ready import Waiting
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.recovery.retry import with_reserve
from mqcd.queue.recovery.salvage import salvage
from mqcd.queue.recovery.unknown_outcomes import note_unknown
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.scan import Damage
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read of the segments."""

    replay: LiveEntries
    entries: list[JournalEntry]


async def replay_chain(shard: Shard, chain: Sequence[Segment]) -> None:
    """Bring what the segments of the last run hold into the shard; `chain` has the oldest first.

    Raises OSError, StoreDamaged.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(shard.executor, _read, shard, chain)
    replay = found.replay
    await with_reserve(
        shard, lambda: loop.run_in_executor(shard.executor, _quarantine, shard, chain, replay.damage)
    )
    shard.figures.quarantined += len(replay.damage)
    cut_off = await _place_entries(shard, chain, found.entries)
    _place_clusters(shard, replay)
    cut_off += await salvage(shard, replay)
    await note_unknown(shard, cut_off)
    totals = sum([segment.totals for segment in chain], shard.manifest.state.totals)
    shard.figures.hidden = totals[Verb.OUTCOME_UNKNOWN] + len(cut_off)


def _read(shard: Shard, chain: Sequence[Segment]) -> _Found:
    """Runs in a thread: nothing else reads or changes these segments meanwhile.

    A newer program's clusters are refused before anything is written on what stands beside them.
    """
    disk, replay = shard.disk, LiveEntries()
    state = shard.manifest.state
    for cluster in state.clusters.values():
        check_version(disk, shard.queue_root / cluster.name, state.writer)
    for segment in chain:
        # What a killed process wrote may be in the page cache only; from here on it counts.
        disk.datasync(segment.fd)
        replay.read(disk, segment, last=segment is chain[-1])
        segment.totals = replay.totals[segment.number]
    # No submission with a key is taken before this has ended.
    shard.keys.load(replay.keys, tuple(state.keys.values()))
    return _make_entries(chain, replay)


def _quarantine(shard: Shard, chain: Sequence[Segment], damage: Sequence[Damage]) -> None:
    """Copy damaged stretches to the quarantine. Runs in a thread."""
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


def _make_entries(chain: Sequence[Segment], replay: LiveEntries) -> _Found:
    entries = []
    for entry in replay.entries({segment.number: segment for segment in chain}):
        entry.raw = b""
        entries.append(entry)
    return _Found(replay, entries)


async def _place_entries(
    shard: Shard, chain: Sequence[Segment], entries: Sequence[JournalEntry]
) -> list[JournalEntry]:
    """Put the entries into memory. Returns the ones whose attempt a crash cut off (outcome unknown)."""
    cut_off = []
    waiting = Waiting()
    latest = shard.latest_due()
    async for part in slices(entries):
        for entry in part:
            if entry.area not in (Area.HELD, Area.REMOVED):
                entry.due = min(entry.due, latest)
            shard.ring.entries += 1
            shard.entries.accounts.add_entry(entry)
            if entry.begun:
                cut_off.append(entry)
            else:
                waiting.add(entry)
    # In the order of arrival: what has come meanwhile stands behind what was there.
    newest = chain[-1].number if chain else 0
    for segment in shard.ring:
        if segment.number > newest:
            for entry in segment.entries.values():
                if entry.state is State.WAITING:
                    waiting.add(entry)
    shard.entries.waiting = waiting
    return cut_off


def _place_clusters(shard: Shard, replay: LiveEntries) -> None:
    """Put the clusters into memory, each with the cursor that the journal says; nothing is written."""
    state, index = shard.manifest.state, shard.cluster_index
    shard.cluster_index.replaced_up_to = max([state.replaced, *(at for at, _ in replay.made.values())])
    for cluster in replay.clusters(state).values():
        take = replay.takes.get(cluster.name)
        if take is not None and take.cursor >= cluster.cursor:
            cluster = replace(cluster, cursor=take.cursor, left=take.left, octets=take.octets)
            index.changed.add(cluster.name)
        shard.entries.accounts.add_cluster(cluster)
        index.add(cluster)
        if not cluster.left or cluster.name not in state.clusters:
            index.changed.add(cluster.name)
    # Also for entries: the clock may have leapt since they were taken in.
    shard.bring_forward()
