"""Step R3: replays the journal of earlier runs while new mail is accepted.

A thread reads the segments of the earlier runs, of which nothing changes meanwhile; the event loop takes
in what it found, some at a time. Each attempt that a crash cut off is reported once as outcome-unknown, in
UNKNOWN frames, and its recipient waits again. Until all of that is done nothing may be claimed, exported or
evacuated. Every step can be repeated by the next start. What the disk has no room for is written with the
room of a reserve file.

After damage to the journal, `_salvage` takes what lost TAKE frames had moved out of clusters. A TAKE frame
moves records of a cluster into the journal: those from the cluster's cursor up to its new one, without a gap.
When the frame is lost, the cursor is still the old one, and the lines seem to wait there. Later frames show
that they do not: these frames settle or begin some of the lines' recipients. A lost take reached at least to
the last line that a later frame mentions. So that line and all before it are taken again:

    line of the cluster    later frames say    it is
    1  (the cursor)        delivered           skipped: it has ended
    2                      nothing             taken: it may have been tried, so its outcome is unknown
    3                      deferred            skipped: that frame has its record
    4                      an attempt began    taken: its outcome is unknown
    5                      nothing             left in the cluster: nothing shows that it was taken
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.transition import unknown
from mqcd.disk.durable import describe
from mqcd.queue.clusters.file import check_version
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.clusters.reading import entry_of
from mqcd.queue.disk.reserve import or_with_reserve
from mqcd.queue.format import record
from mqcd.queue.format.frame import (
    ALIVE,
    BEGUN,
    ENTRY_HEAD,
    IN_SPOOL,
    Entry,
    Kind,
    Mark,
    in_frames,
    pack_entry,
    pack_take,
)
from mqcd.queue.format.record import Glance
from mqcd.queue.memory.ready import Waiting
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.wal.scan import Damage
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

Done = TypeVar("Done")
_MENDED_S = 5
"""How long, s, a start waits for a journal that has been given room: it tries a new segment after 1 s."""
_BATCH = 500
"""Records in one UNKNOWN or TAKE frame, at most."""
_ALL = 1 << 62
"""Whatever is due, and however much that is."""


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
    await _with_reserve(
        shard, lambda: loop.run_in_executor(shard.executor, _quarantine, shard, chain, replay.damage)
    )
    shard.figures.quarantined += len(replay.damage)
    cut_off = await _place_entries(shard, chain, found.entries)
    _place_clusters(shard, replay)
    cut_off += await _salvage(shard, replay)
    await _note_unknown(shard, cut_off)
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


class _Move(NamedTuple):
    """One recipient's part of an UNKNOWN frame."""

    entry: JournalEntry
    before: Recipient
    following: Recipient
    frame_entry: Entry


async def _note_unknown(shard: Shard, cut_off: Sequence[JournalEntry]) -> None:
    """Write UNKNOWN frames for entries whose attempt a crash cut off, and let them wait again.

    Raises OSError, StoreUnavailable.
    """
    for start in range(0, len(cut_off), _BATCH):
        batch = [(each, await shard.recipient(each)) for each in cut_off[start : start + _BATCH]]
        at = shard.clock.now()
        moves = [_move(shard, each, before, at) for each, before in batch]
        for part, body in in_frames(moves, _pack, shard.journal.frame_room):
            await _with_reserve(shard, partial(_append, shard, part, body, at))


def _move(shard: Shard, entry: JournalEntry, before: Recipient, at: int) -> _Move:
    following = unknown(before, shard.options.schedule, at)
    segment, ordinal = entry.segment.number, entry.ordinal
    frame_entry = Entry(Mark.UNKNOWN, ALIVE, segment, ordinal, entry.content, record.encode(following))
    return _Move(entry, before, following, frame_entry)


def _pack(moves: Sequence[_Move]) -> bytes:
    return b"".join([pack_entry(move.frame_entry) for move in moves])


async def _append(shard: Shard, moves: Sequence[_Move], body: bytes, at: int) -> None:
    def placed(segment: Segment, ordinal: int, body_at: int, _sequence: int) -> None:
        for entry, before, following, frame_entry in moves:
            shard.entries.move(entry, segment, ordinal, body_at + ENTRY_HEAD, len(frame_entry.line))
            shard.entries.rest(entry, following)
            shard.observer.outcome_unknown(at, before)
            ordinal += 1
            body_at += ENTRY_HEAD + len(frame_entry.line)

    await shard.journal.append(Kind.UNKNOWN, [body], len(moves), at, placed)


async def _salvage(shard: Shard, replay: LiveEntries) -> list[JournalEntry]:
    """Take the lines of lost frames. Returns the entries that they make, whose outcome is unknown.

    Raises OSError, StoreUnavailable.
    """
    begun: list[JournalEntry] = []
    if not (replay.damage and (replay.moved or replay.tried)):
        return begun
    for name in [name for name, state in shard.cluster_index.clusters.items() if state.left]:
        left = await _count_lost(shard, replay, name)
        while left > 0:
            lines, entries = await _with_reserve(shard, partial(_take, shard, replay, name, left))
            left -= lines
            begun += entries
    return begun


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


async def _with_reserve(shard: Shard, work: Callable[[], Awaitable[Done]]) -> Done:
    """Do `work`; once more when it finds no room and a reserve file went, after the journal tried a new
    segment, if it was the journal's."""

    async def again() -> Done:
        mended = asyncio.Event()
        shard.journal.trouble.when_certain(mended.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MENDED_S):
                await mended.wait()
        return await work()

    return await or_with_reserve(shard.disk, shard.queue_root, shard.spool_root, work, again)
