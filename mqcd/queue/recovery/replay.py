"""Step R3: replays the journal of earlier runs while new mail is accepted. One function for each step:

| step | writes |
|---|---|
| `_read`, in a thread: sync and read the segments; what their frames amount to | |
| `quarantine_damage`: keep what does not check (`salvage`) | files of the quarantine |
| `_place_entries`: the unfinished recipients, in memory | |
| `_place_clusters`: the clusters, each from its cursor on, in memory | |
| `take_again`: after damage, what lost TAKE frames had moved (`salvage`) | TAKE frames |
| `_report_unknown`: attempts that a crash cut off; their recipients wait again | UNKNOWN frames |

Until the last step has ended nothing may be claimed, exported, evacuated or removed, and new mail goes to
segments of this run. So nothing else changes what is read here.

Every step can be repeated, and is by the next start if this one is cut off. A find in quarantine is the same
file again. A TAKE marks what it has taken as begun, so it is reported without the damage being looked at
again. An UNKNOWN frame ends the attempts that it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from mqcd.core.events import Verb
from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.transition import unknown
from mqcd.queue.clusters.file import check_version
from mqcd.queue.format import record
from mqcd.queue.format.frame import ALIVE, ENTRY_HEAD, Entry, Kind, Mark, in_frames, pack_entry
from mqcd.queue.memory.ready import Waiting
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.recovery.room import with_reserve
from mqcd.queue.recovery.salvage import quarantine_damage, take_again
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.segments import JournalEntry, Segment

_REPORTED_AT_ONCE = 500
"""Records in one UNKNOWN frame, at most."""


async def replay_chain(shard: Shard, chain: Sequence[Segment]) -> None:
    """Bring what the segments of earlier runs hold into the shard; `chain` has the oldest first.

    Raises OSError, DecodeError, StoreDamaged, StoreUnavailable.
    """
    loop = asyncio.get_running_loop()
    live, entries = await loop.run_in_executor(shard.executor, _read, shard, chain)
    await quarantine_damage(shard, chain, live.damage)
    cut_off = await _place_entries(shard, chain, entries)
    _place_clusters(shard, live)
    cut_off += await take_again(shard, live)
    await _report_unknown(shard, cut_off)
    totals = sum([segment.totals for segment in chain], shard.manifest.state.totals)
    shard.figures.hidden = totals[Verb.OUTCOME_UNKNOWN] + len(cut_off)


def _read(shard: Shard, chain: Sequence[Segment]) -> tuple[LiveEntries, list[JournalEntry]]:
    """What the frames amount to, and the unfinished recipients of the segments. Runs in a thread.

    A newer program's clusters are refused before anything of the earlier runs is changed.
    """
    disk, live = shard.disk, LiveEntries()
    state = shard.manifest.state
    for cluster in state.clusters.values():
        check_version(disk, shard.queue_root / cluster.name, state.writer)
    for segment in chain:
        # What a killed process wrote may be in the page cache only; from here on it counts.
        disk.datasync(segment.fd)
        live.read(disk, segment, last=segment is chain[-1])
        segment.totals = live.totals[segment.number]
    # No submission with a key is taken before R3 has ended.
    shard.keys.load(live.keys, tuple(state.keys.values()))
    entries = []
    for entry in live.entries({segment.number: segment for segment in chain}):
        # Records are read again when they are claimed: all of them would not fit into memory.
        entry.raw = b""
        entries.append(entry)
    return live, entries


async def _place_entries(
    shard: Shard, chain: Sequence[Segment], entries: Sequence[JournalEntry]
) -> list[JournalEntry]:
    """Put the entries into memory. Returns the ones whose attempt a crash cut off: they are counted, and wait
    in no queue until that is reported."""
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
    # In the order of arrival: what has come meanwhile stands behind what was there. No await from here on:
    # what is popped from the old `waiting` would be there twice.
    newest = chain[-1].number if chain else 0
    for segment in shard.ring:
        if segment.number > newest:
            for entry in segment.entries.values():
                if entry.state is State.WAITING:
                    waiting.add(entry)
    shard.entries.waiting = waiting
    return cut_off


def _place_clusters(shard: Shard, live: LiveEntries) -> None:
    """Put the clusters into memory, each from its effective cursor on."""
    state, index = shard.manifest.state, shard.cluster_index
    # The oldest first: each then stands behind the others at once (`clusters.offers`).
    for cluster in sorted(live.clusters(state).values(), key=attrgetter("received")):
        shard.entries.accounts.add_cluster(cluster)
        if cluster.left and cluster == state.clusters.get(cluster.name):
            index.add(cluster)
        else:
            # A frame has changed it, or nothing is left of it: the next edit records that.
            index.advance(cluster)
    index.replaced_up_to = max([state.replaced, *(at for at, _ in live.made.values())])
    # Also for entries: the clock may have leapt since they were taken in.
    shard.bring_forward()


class _Outcome(NamedTuple):
    """One recipient's part of an UNKNOWN frame."""

    entry: JournalEntry
    before: Recipient
    following: Recipient
    frame_entry: Entry


async def _report_unknown(shard: Shard, cut_off: Sequence[JournalEntry]) -> None:
    """Write UNKNOWN frames for entries whose attempt a crash cut off, and let them wait again.

    Raises OSError, StoreUnavailable; DecodeError for a record that does not check.
    """
    for start in range(0, len(cut_off), _REPORTED_AT_ONCE):
        batch = [(each, await shard.recipient(each)) for each in cut_off[start : start + _REPORTED_AT_ONCE]]
        at = shard.clock.now()
        outcomes = [_outcome(shard, each, before, at) for each, before in batch]
        for part, body in in_frames(outcomes, _pack, shard.journal.frame_room):
            await with_reserve(shard, partial(_append, shard, part, body, at))


def _outcome(shard: Shard, entry: JournalEntry, before: Recipient, at: int) -> _Outcome:
    following = unknown(before, shard.options.schedule, at)
    segment, ordinal = entry.segment.number, entry.ordinal
    frame_entry = Entry(Mark.UNKNOWN, ALIVE, segment, ordinal, entry.content, record.encode(following))
    return _Outcome(entry, before, following, frame_entry)


def _pack(outcomes: Sequence[_Outcome]) -> bytes:
    return b"".join([pack_entry(each.frame_entry) for each in outcomes])


async def _append(shard: Shard, outcomes: Sequence[_Outcome], body: bytes, at: int) -> None:
    def placed(segment: Segment, ordinal: int, body_at: int, _sequence: int) -> None:
        for entry, before, following, frame_entry in outcomes:
            # The entries of UNKNOWN have no notes.
            shard.entries.move(entry, segment, ordinal, body_at + ENTRY_HEAD, len(frame_entry.line))
            shard.entries.rest(entry, following)
            shard.observer.outcome_unknown(at, before)
            ordinal += 1
            body_at += ENTRY_HEAD + len(frame_entry.line)

    await shard.journal.append(Kind.UNKNOWN, [body], len(outcomes), at, placed)
