"""Step C1 of an evacuation: what waits in a segment is frozen, what is in flight leaves it.

Promise: when it is done, every entry of the segment is frozen, and every verdict on those who have left
it is durable: their frames are, and no later start finds them here.
"""

from __future__ import annotations

import asyncio

from mqcd.queue.format.frame import ALIVE, BEGUN, ENTRY_HEAD, Entry, Kind, Mark, pack_entry
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import AT_ONCE, slices
from mqcd.queue.requests.write import Writer
from mqcd.queue.wal.pending import Placed
from mqcd.queue.wal.segments import JournalEntry, Segment, State


class Carrying:
    """One per shard, driven by its checkpointer."""

    def __init__(self, shard: Shard, writer: Writer) -> None:
        self._shard = shard
        self._writer = writer

    async def run(self, segment: Segment, frozen: list[JournalEntry]) -> None:
        """Do it for one segment; `frozen` grows by what was frozen, also when it fails. Raises OSError,
        StoreUnavailable."""
        shard = self._shard
        while True:
            # Again each time: what was claimed may have been given back meanwhile.
            await self._freeze(segment, frozen)
            if all(r.state is State.FROZEN for r in segment.entries.values()):
                return
            carried: list[JournalEntry] = []
            frame_entries: list[Entry] = []
            room = shard.journal.largest_frame
            for entry in segment.entries.values():
                if entry.state is not State.CLAIMED:
                    continue
                line = shard.raw_line(entry)
                room -= ENTRY_HEAD + len(line)
                if carried and (room < 0 or len(carried) == AT_ONCE):
                    break
                flags = ALIVE | (BEGUN if entry.begun else 0)
                home = entry.segment.number, entry.ordinal
                frame_entries.append(Entry(Mark.CARRIED, flags, *home, entry.content, line))
                carried.append(entry)
            for entry in carried:
                entry.state = State.CARRYING
            body = b"".join(map(pack_entry, frame_entries))
            at = shard.clock.now()
            placed = self._placed(carried, frame_entries)
            # With nobody to carry, the frame still tells when the verdicts before it are durable.
            self._writer.carried = shard.journal.append(Kind.CARRY, [body], len(frame_entries), at, placed)
            try:
                await asyncio.shield(self._writer.carried)
            finally:
                self._writer.carried = None
                for entry in carried:
                    if entry.state is State.CARRYING:
                        entry.state = State.CLAIMED

    async def _freeze(self, segment: Segment, frozen: list[JournalEntry]) -> None:
        latest = self._shard.latest_due()
        async for part in slices(tuple(segment.entries.values())):
            for entry in part:
                # Some may have moved, or come back, since the turn before.
                if entry.state is State.WAITING and entry.segment is segment:
                    self._shard.waiting.leave(entry, latest)
                    entry.state = State.FROZEN
                    frozen.append(entry)

    def _placed(self, carried: list[JournalEntry], frame_entries: list[Entry]) -> Placed:
        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            for entry, frame_entry in zip(carried, frame_entries, strict=True):
                self._shard.move(entry, segment, ordinal, body + ENTRY_HEAD, len(frame_entry.line))
                if entry.state is State.CARRYING:
                    entry.state = State.CLAIMED
                ordinal += 1
                body += ENTRY_HEAD + len(frame_entry.line)

        return placed
