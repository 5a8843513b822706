"""CARRY frames: they move claimed entries out of a segment that is to be evacuated.

A frame of a request names the record locations of its entries, and a CARRY changes them. So while one is
written, requests append nothing for claimed entries (`when_carried`). Claims go on; what one of them gives up
meanwhile waits after the frame (`wal.entry_states`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from mqcd.queue.format.frame import ALIVE, BEGUN, ENTRY_HEAD, Entry, Kind, Mark, pack_entry
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.entry_states import UNDER_CARRY, Event
from mqcd.queue.wal.segments import JournalEntry, Segment


class Carries:
    """Of one shard: evacuations append them, one at a time, and requests wait for them."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.under_way: asyncio.Future[None] | None = None
        """The frame that is not durable yet."""

    def when_carried(self, write: Callable[[], Awaitable[None]]) -> Awaitable[None]:
        """Call `write`, at once or when the carry under way has ended; also if the caller is cancelled."""
        carried = self.under_way
        if carried is None:
            return write()

        async def later() -> None:
            # If it cannot be written, they stay where they are, and what follows has its own fate.
            await asyncio.wait([carried])
            await self.when_carried(write)

        return asyncio.shield(later())

    async def carry(self, claimed: Sequence[tuple[JournalEntry, bytes]]) -> None:
        """Move claimed entries, each with its record line, to the current segment by one frame.

        A frame without entries is written, too: when it is durable, so are the verdicts before it. Raises
        StoreUnavailable; then they are where they were.
        """
        shard = self._shard
        carried = [(entry, _carried(entry, line)) for entry, line in claimed]
        for entry, _ in carried:
            entry.on(Event.CARRY)

        def landed() -> None:
            # Also what is called when the frame fails: nothing has moved then, and states follow alike.
            for entry, _ in carried:
                if entry.state in UNDER_CARRY:
                    shard.entries.carried(entry)
            # Some may have been given up meanwhile.
            shard.notify()

        def placed(target: Segment, ordinal: int, body: int, _sequence: int) -> None:
            for entry, frame_entry in carried:
                shard.entries.move(entry, target, ordinal, body + ENTRY_HEAD, len(frame_entry.line))
                ordinal += 1
                body += ENTRY_HEAD + len(frame_entry.line)
            landed()

        body = b"".join([pack_entry(frame_entry) for _, frame_entry in carried])
        durable = shard.journal.append(Kind.CARRY, [body], len(carried), shard.clock.now(), placed, landed)
        self.under_way = durable
        try:
            # Shielded: requests wait for this future, too (`when_carried`).
            await asyncio.shield(durable)
        finally:
            self.under_way = None


def _carried(entry: JournalEntry, line: bytes) -> Entry:
    """Its part of a CARRY frame."""
    flags = ALIVE | (BEGUN if entry.begun else 0)
    return Entry(Mark.CARRIED, flags, entry.segment.number, entry.ordinal, entry.content, line)
