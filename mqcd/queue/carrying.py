"""Step C1 of an evacuation: what waits in a segment is frozen, what is in flight leaves it.

Promise: when it is done, every resident of the segment is frozen, and every verdict on those who have left
it is durable: their frames are, and no later start finds them here.
"""

from __future__ import annotations

import asyncio

from mqcd.queue.frame import ALIVE, BEGUN, ENTRY_HEAD, Entry, Kind, Mark, pack_entry
from mqcd.queue.pending import Placed
from mqcd.queue.ring import Resident, Segment, State
from mqcd.queue.shard import Shard
from mqcd.queue.slices import AT_ONCE, slices
from mqcd.queue.writes import Writer


class Carrying:
    """One per shard, driven by its keeper."""

    def __init__(self, shard: Shard, writer: Writer) -> None:
        self._shard = shard
        self._writer = writer

    async def run(self, segment: Segment, frozen: list[Resident]) -> None:
        """Do it for one segment; `frozen` grows by what was frozen, also when it fails. Raises OSError,
        StoreUnavailable."""
        shard = self._shard
        while True:
            # Again each time: what was claimed may have been given back meanwhile.
            await self._freeze(segment, frozen)
            if all(r.state is State.FROZEN for r in segment.residents.values()):
                return
            carried: list[Resident] = []
            entries: list[Entry] = []
            room = shard.journal.largest_frame
            for resident in segment.residents.values():
                if resident.state is not State.CLAIMED:
                    continue
                line = shard.raw_line(resident)
                room -= ENTRY_HEAD + len(line)
                if carried and (room < 0 or len(carried) == AT_ONCE):
                    break
                flags = ALIVE | (BEGUN if resident.begun else 0)
                home = resident.segment.number, resident.ordinal
                entries.append(Entry(Mark.CARRIED, flags, *home, resident.content, line))
                carried.append(resident)
            for resident in carried:
                resident.state = State.CARRYING
            body = b"".join(map(pack_entry, entries))
            at = shard.clock.now()
            placed = self._placed(carried, entries)
            # With nobody to carry, the frame still tells when the verdicts before it are durable.
            self._writer.carried = shard.journal.append(Kind.CARRY, [body], len(entries), at, placed)
            try:
                await asyncio.shield(self._writer.carried)
            finally:
                self._writer.carried = None
                for resident in carried:
                    if resident.state is State.CARRYING:
                        resident.state = State.CLAIMED

    async def _freeze(self, segment: Segment, frozen: list[Resident]) -> None:
        latest = self._shard.latest_due()
        async for part in slices(tuple(segment.residents.values())):
            for resident in part:
                # Some may have moved, or come back, since the turn before.
                if resident.state is State.WAITING and resident.segment is segment:
                    self._shard.waiting.leave(resident, latest)
                    resident.state = State.FROZEN
                    frozen.append(resident)

    def _placed(self, carried: list[Resident], entries: list[Entry]) -> Placed:
        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            for resident, entry in zip(carried, entries, strict=True):
                self._shard.move(resident, segment, ordinal, body + ENTRY_HEAD, len(entry.line))
                if resident.state is State.CARRYING:
                    resident.state = State.CLAIMED
                ordinal += 1
                body += ENTRY_HEAD + len(entry.line)

        return placed
