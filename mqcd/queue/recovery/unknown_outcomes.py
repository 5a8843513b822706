"""What a start records of attempts that a crash cut off: that nobody knows their outcome.

Promise: each of them is reported once, in UNKNOWN frames, and then waits again; claims open after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from mqcd.core.model import Recipient
from mqcd.core.queueing.transition import unknown
from mqcd.queue.format import record
from mqcd.queue.format.frame import ALIVE, ENTRY_HEAD, Entry, Kind, Mark, in_frames, pack_entry
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.recovery.retry import with_reserve
from mqcd.queue.wal.segments import JournalEntry, Segment

_BATCH = 500
"""Recipients in one UNKNOWN frame, at most."""


class _Move(NamedTuple):
    """One recipient's part of an UNKNOWN frame."""

    entry: JournalEntry
    before: Recipient
    following: Recipient
    frame_entry: Entry


async def note_unknown(shard: Shard, cut_off: Sequence[JournalEntry]) -> None:
    """Write UNKNOWN frames for entries whose attempt a crash cut off, and let them wait again.

    Raises OSError, StoreUnavailable.
    """
    for start in range(0, len(cut_off), _BATCH):
        batch = [(each, await shard.recipient(each)) for each in cut_off[start : start + _BATCH]]
        at = shard.clock.now()
        moves = [_move(shard, each, before, at) for each, before in batch]
        for part, body in in_frames(moves, _pack, shard.journal.frame_room):
            await with_reserve(shard, partial(_append, shard, part, body, at))


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
