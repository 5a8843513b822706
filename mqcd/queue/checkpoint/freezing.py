"""C1 of an evacuation: all that is in a segment is frozen or leaves it; and the undoing of that.

What rests is frozen. What is in flight must not be, because its verdict may come at any moment:

| an entry that | becomes |
|---|---|
| waits, or was passed over | frozen |
| is claimed | moved to the current segment by a CARRY frame; in flight all the while |
| is claimed, and given up before that frame is appended | frozen, in the next round |
| is claimed, and given up while that frame is written | moved all the same; it waits there |
| is being settled or parked | moved or ended by its own frame: a CARRY, which may be empty, is behind it |
"""

from __future__ import annotations

from mqcd.core.model import Area
from mqcd.queue.format.frame import ENTRY_HEAD
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import AT_ONCE, slices
from mqcd.queue.requests.carries import Carries
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry, Segment


class Freezing:
    """The freezing of one segment."""

    def __init__(self, shard: Shard, carries: Carries, segment: Segment) -> None:
        self._shard = shard
        self._carries = carries
        self._segment = segment

    async def freeze(self) -> list[JournalEntry]:
        """Freeze every entry of the segment, and return them. The frames of all that have left it are durable
        then: no later start finds them here. Raises OSError, StoreUnavailable; then some may be frozen."""
        frozen = await self._freeze_resting()
        while any(entry.state is not State.FROZEN for entry in self._segment.entries.values()):
            await self._carries.carry(await self._claimed())
            frozen += await self._freeze_resting()
        return frozen

    async def thaw(self) -> None:
        """All that rests in the segment waits again, in its order; what came back to rest since is frozen
        first."""
        shard = self._shard
        # Also what was given back since: else it would stand in the queues twice.
        await self._freeze_resting()
        async for part in slices(tuple(self._segment.entries.values())):
            # The clock may have leapt back since it was frozen.
            latest = shard.latest_due()
            for entry in part:
                if entry.state is State.FROZEN:
                    entry.on(Event.THAW)
                    shard.entries.waiting.rejoin(entry, latest)
        shard.entries.moving_held.clear()
        shard.notify()

    async def _freeze_resting(self) -> list[JournalEntry]:
        """Freeze until none of the segment rests, and in that turn take all of them out of the queues.
        Returns what this call has frozen."""
        shard, segment = self._shard, self._segment
        frozen: list[JournalEntry] = []
        while resting := [entry for entry in segment.entries.values() if entry.resting]:
            latest = shard.latest_due()
            async for part in slices(resting):
                for entry in part:
                    # Some may have moved, or come back, since the turn before.
                    if entry.resting and entry.segment is segment:
                        shard.entries.waiting.leave(entry, latest)
                        entry.on(Event.FREEZE)
                        frozen.append(entry)
                        if entry.area is Area.HELD and entry.due:
                            shard.entries.moving_held.add(entry.domain)
        shard.entries.waiting.drop(segment.number)
        return frozen

    async def _claimed(self) -> list[tuple[JournalEntry, bytes]]:
        """Claimed entries and their lines, as many as fit in one frame."""
        segment, room = self._segment, self._shard.journal.largest_frame
        lines: list[tuple[JournalEntry, bytes]] = []
        for entry in [each for each in segment.entries.values() if each.state is State.CLAIMED]:
            room -= ENTRY_HEAD + entry.length
            if lines and (room < 0 or len(lines) == AT_ONCE):
                break
            lines.append((entry, await self._shard.raw_line(entry)))
        # While others were read, some may have been settled or given back.
        return [each for each in lines if each[0].segment is segment and each[0].state is State.CLAIMED]
