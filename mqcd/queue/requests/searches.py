"""The simple searches: bounces, removals, held mail, and what a batch names. They regard no suspension."""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.core.model import Area
from mqcd.queue.requests.search import Search
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry


async def find_bounces(search: Search, room: int) -> None:
    """Find bounces to report on."""
    index, waiting = search.shard.cluster_index, search.shard.waiting
    await search.load(lambda: index.first(Area.BOUNCES), room, search.found)
    await search.pop(lambda: waiting.pop_bounce(search.now), room, search.found)


async def find_removed(search: Search, room: int) -> None:
    """Find removals whose grace is over."""
    await search.at_end(Area.REMOVED, search.shard.waiting.pop_removed, room)


async def find_held(search: Search, domain: str, room: int) -> None:
    """Find what rests for a domain; clusters have the older mail."""
    index, waiting = search.shard.cluster_index, search.shard.waiting
    await search.load(lambda: index.first_held(domain), room, search.found)
    popped: set[JournalEntry] = set()

    def pop() -> JournalEntry | None:
        entry = waiting.pop_held(domain)
        if entry is None or entry not in popped:
            popped.update([entry] if entry is not None else ())
            return entry
        # It could not be read, and rests again: this claim would meet it for ever.
        waiting.add(entry)
        return None

    await search.pop(pop, room, search.found)


async def find_entries(search: Search, wanted: Sequence[JournalEntry]) -> None:
    """Claim entries by name."""
    for entry in wanted:
        if entry.resting:
            entry.on(Event.CLAIM)
            search.found.append(entry)
