"""The search for new and due mail: how much of a claim's room goes to which, in which order.

`ROWS` is the order. Each row may fill the claim up to a share; what it leaves, those after it take:

| row | finds | until this part of the room is full |
|---|---|---|
| `overdue` | overdue mail of domains whose suspension was renewed | a quarter, or one: `overdue_share` |
| `ended` | held mail at its end | a quarter with those, or one: `ended_share` |
| `due_at_first` | due mail | half of what is left: `due_share` |
| `new` | new mail, urgent mail of it first | all: `whole` |
| `due`, `overdue` | the same as above | all |
| `beyond` | new mail of tenants that have further places | beyond it |

In each row clusters go before the journal, because they have the older mail, and tenants take turns. Of
several tenants half of the places that are left goes to the journal (`older_share`). Records of clusters
move into the journal first (`load`). A recipient whose domain is suspended is passed over (`passing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from mqcd.core.model import Area
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.passing import NOTHING_EXPIRES, Expiry, Skip
from mqcd.queue.requests.search import Search
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry

ASKED_AT_ONCE = 50
"""Old recipients of suspended domains whose records one claim reads to see whether they are overdue."""


class Odd(NamedTuple):
    """Which row gets the odd place of a claim."""

    due_first: bool
    """Due mail, rather than new mail; and ended mail, rather than overdue mail."""
    older_first: bool
    """Of several tenants clusters, rather than the journal."""
    early_first: bool
    """Of one place: ended or overdue mail, rather than due or new mail."""


ODD_PLACES = (
    Odd(True, False, False),
    Odd(False, True, False),
    Odd(True, True, True),
    Odd(False, False, True),
    Odd(True, True, False),
    Odd(False, False, False),
    Odd(True, False, True),
    Odd(False, True, True),
)
"""Of successive claims. Not in step: of claims of one place each row gets the first turn in one of four, and
then the two sides of several tenants in turn."""


@dataclass(slots=True)
class Room:
    """What decides how far a row may fill a claim."""

    places: int
    """Of the claim."""
    odd: Odd
    taken: int = 0
    """How many of them the rows before have filled."""


# Each share says how many places may be filled when its row has had its turn.


def overdue_share(room: Room) -> int:
    """A quarter for overdue recipients of suspended domains: on a busy server nothing would be left for them.
    Of two or three places it is one in every other claim; of one, in every fourth claim."""
    return room.places // 4 or int(not room.odd.due_first and (room.places > 1 or room.odd.early_first))


def ended_share(room: Room) -> int:
    """A quarter for these together with held mail whose time has ended. Of two or three places it is one; of
    one, in every other claim."""
    return room.places // 4 or int(room.places > 1 or room.odd.early_first)


def due_share(room: Room) -> int:
    """Half of what is left for due mail, before new mail has had its turn."""
    half, odd = divmod(room.places - room.taken, 2)
    return room.taken + half + (odd if room.odd.due_first else 0)


def whole(room: Room) -> int:
    """All that is left."""
    return room.places


def older_share(most: int, taken: int, several: bool, older_first: bool) -> int:
    """The share of clusters in a row that may fill `most` places, `taken` of them before it: all, but of
    several tenants half of what is left."""
    return most - (most - taken + (not older_first)) // 2 if several else most


FIRST, DUE, NEW, LAST = range(4)
"""The parts of what a claim returns, in order; of the two in the middle, entries alternate."""


class MailSearch(Search):
    """One claim of mail."""

    def __init__(
        self, shard: Shard, now: int, skip: Skip, expiry: Expiry, places: Places | None, odd: Odd
    ) -> None:
        super().__init__(shard, now, skip, expiry, places)
        self._odd = odd
        self._asks = ASKED_AT_ONCE
        """Records that it may still read to see whether their recipients are overdue."""

    async def fill(self, room: int) -> None:
        """Find mail for so many places, and for further ones."""
        try:
            if room:
                await self._fill_room(Room(room, self._odd))
            if self.places is not None and self.places.extra:
                await self.beyond(self.places)
        finally:
            if self._leaves_some(room):
                asyncio.get_running_loop().call_soon(self.shard.notify)

    async def _fill_room(self, room: Room) -> None:
        """Go through the rows, and put what they have found in order."""
        parts: tuple[list[JournalEntry], ...] = ([], [], [], [])
        for share, find, part in ROWS:
            room.taken = len(self.found)
            if (most := share(room)) > room.taken:
                await find(self, most)
                parts[part].extend(self.found[room.taken :])
        first, due, new, last = parts
        if due and new:
            pairs = zip_longest(due, new) if room.odd.due_first else zip_longest(new, due)
            alternating = (entry for pair in pairs for entry in pair if entry is not None)
            self.found = [*first, *alternating, *last]

    def _leaves_some(self, room: int) -> bool:
        """Whether it leaves mail that another claim would find at once."""
        if self.passing.left <= 0:
            return True
        # One that lets nothing expire has asked about none, and another one would not either.
        asks = room and self.expiry is not NOTHING_EXPIRES
        return bool(asks) and self.shard.entries.waiting.has_aged

    async def overdue(self, most: int) -> None:
        """Claim overdue mail of renewed suspensions. What is not claimed stays in its bucket."""
        waiting, expiry = self.shard.entries.waiting, self.expiry
        if expiry is NOTHING_EXPIRES:
            return
        while self._asks > 0 and len(self.found) < most:
            entry = waiting.pop_aged(expiry.received_by)
            if entry is None:
                return
            self._asks -= 1
            recipient = await self.read(entry)
            if entry.state is not State.PASSED_OVER:
                # Meanwhile it was frozen, or `entries` claimed it and its record may be another one now.
                entry.recipient, entry.raw = None, b""
            elif isinstance(recipient, int):
                entry.on(Event.CLAIM)
                self.put_off(entry, recipient)
            elif expiry.overdue(recipient):
                entry.due = 0
                self.claim(entry)
            else:
                entry.recipient, entry.raw = None, b""

    async def ended(self, most: int) -> None:
        """Claim held mail at its end."""
        await self.take_due(Area.HELD, self.shard.entries.waiting.pop_held_end, most)

    async def due_at_first(self, most: int) -> None:
        """Claim due mail, with half of the passes: many suspended recipients must not delay new mail."""
        self.passing.keep_half()
        await self.due(most)
        self.passing.return_half()

    async def due(self, most: int) -> None:
        """Claim due mail."""
        offers, waiting, passing = self.shard.cluster_index.offers, self.shard.entries.waiting, self.passing
        await self._in_turn(
            lambda: offers.first_due(self.now),
            offers.due_tenants(self.now),
            lambda: waiting.pop_due(self.now, passing.skip, self.expiry.received_by),
            waiting.due_tenants(self.now),
            most,
        )

    async def new(self, most: int) -> None:
        """Claim new mail, urgent mail of it first."""
        offers, waiting = self.shard.cluster_index.offers, self.shard.entries.waiting
        before = len(self.found)
        await self.pop(waiting.pop_urgent, before + waiting.urgent_share(most - before))
        await self._in_turn(
            lambda: offers.first(Area.INCOMING),
            offers.tenants(Area.INCOMING),
            waiting.pop_new,
            waiting.tenants,
            most,
        )

    async def beyond(self, places: Places) -> None:
        """Claim new mail of tenants that have further places, from the journal alone."""
        waiting = self.shard.entries.waiting
        await self.pop(lambda: waiting.pop_extra(places.take), len(self.found) + places.extra)

    async def _in_turn(
        self,
        first: Callable[[], str | None],
        older: Collection[str],
        pop: Callable[[], JournalEntry | None],
        newer: Collection[str],
        most: int,
    ) -> None:
        """Claim a share from clusters, which have the `older` tenants' mail; then from the journal, which has
        that of `newer`; what this leaves, from clusters."""
        several = bool(older) and len({*older, *newer}) > 1
        await self.load(first, older_share(most, len(self.found), several, self._odd.older_first), older)
        await self.pop(pop, most)
        await self.load(first, most, older)


class Row(NamedTuple):
    """One row of the table."""

    share: Callable[[Room], int]
    find: Callable[[MailSearch, int], Awaitable[None]]
    """Claims until `found` is so long."""
    part: int
    """Where the result has it."""


ROWS: Sequence[Row] = (
    Row(overdue_share, MailSearch.overdue, FIRST),
    Row(ended_share, MailSearch.ended, FIRST),
    Row(due_share, MailSearch.due_at_first, DUE),
    Row(whole, MailSearch.new, NEW),
    Row(whole, MailSearch.due, DUE),
    Row(whole, MailSearch.overdue, LAST),
)
