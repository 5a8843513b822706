"""What a start records of attempts that a crash cut off: that nobody knows their outcome.

Promise: each of them is told of once, in UNKNOWN frames, and then waits again; claims open after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mqcd.core.model import Recipient
from mqcd.core.transition import unknown
from mqcd.queue import record
from mqcd.queue.frame import ALIVE, ENTRY_HEAD, Entry, Kind, Mark, pack_entry
from mqcd.queue.ring import Resident, Segment
from mqcd.queue.shard import Shard

_BATCH = 500
"""Recipients in one UNKNOWN frame, at most."""


class _Move(NamedTuple):
    """One recipient's part of an UNKNOWN frame."""

    resident: Resident
    before: Recipient
    following: Recipient
    entry: Entry


async def note_unknown(shard: Shard, cut_off: Sequence[Resident]) -> None:
    """Write UNKNOWN frames for residents whose attempt a crash cut off, and let them wait again.

    Raises OSError, StoreUnavailable.
    """
    for start in range(0, len(cut_off), _BATCH):
        at = shard.clock.now()
        await _append(shard, [_move(shard, each, at) for each in cut_off[start : start + _BATCH]], at)


def _move(shard: Shard, resident: Resident, at: int) -> _Move:
    before = shard.load(resident)
    following = unknown(before, shard.options.schedule, at)
    home = resident.segment.number, resident.ordinal
    entry = Entry(Mark.UNKNOWN, ALIVE, *home, resident.content, record.encode(following))
    return _Move(resident, before, following, entry)


async def _append(shard: Shard, moves: list[_Move], at: int) -> None:
    body = b"".join(pack_entry(move.entry) for move in moves)
    if len(body) > shard.journal.frame_room and len(moves) > 1:
        # Only small segments are too small for all of them.
        middle = len(moves) // 2
        await _append(shard, moves[:middle], at)
        await _append(shard, moves[middle:], at)
        return

    def placed(segment: Segment, ordinal: int, body_at: int, _sequence: int) -> None:
        for resident, before, following, entry in moves:
            shard.move(resident, segment, ordinal, body_at + ENTRY_HEAD, len(entry.line))
            shard.rest(resident, following)
            shard.observer.outcome_unknown(at, before)
            ordinal += 1
            body_at += ENTRY_HEAD + len(entry.line)

    await shard.journal.append(Kind.UNKNOWN, [body], len(moves), at, placed)
