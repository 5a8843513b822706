"""Claims: which recipients may be tried now, in which order.

A claim of new and due mail is filled in this order (`_Mail.mail`). Half of its room is for new mail and
half for due mail; what one side leaves, the other takes:

| what | until this part of the room is full |
|---|---|
| overdue mail of domains whose suspension was renewed (`_ask`) | a quarter: `overdue_share` |
| held mail at its end | a quarter: `ended_share` |
| due mail | half of what is left: `due_share` |
| new mail, urgent mail of it first | what is left |
| due mail, overdue mail | what is left |
| new mail of tenants that have further places | beyond the room |

In each row clusters go before the journal, because they have the older mail, and tenants take turns. Of
several tenants half of the places that are left goes to the journal (`older_share`). Records of clusters
move into the journal first (`load`). A recipient whose domain is suspended is passed over (`passing`). How
an entry is taken, and given back, is in `search`.

A claim ends when its room is full, when nothing is due, when it has passed over `PASSED_AT_ONCE`
recipients, or when the journal takes no new work. One that has passed over so many, or may expire mail and
leaves some to ask about, wakes the claimers. One that ends because the journal takes nothing wakes none:
they are woken when the journal takes work again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import chain, zip_longest

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.passing import NOTHING_EXPIRES, Expiry, Overdue, Skip
from mqcd.queue.requests.search import Search
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry

ASKED_AT_ONCE = 50
"""Old recipients of suspended domains whose records one claim reads to see whether they are overdue."""
_FOREVER = 1 << 62
"""A time at which all is due."""


class Claims:
    """Claims recipients of one shard, one search at a time: only one may load records of a cluster, or pass
    entries over."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._turn = asyncio.Lock()
        self._due_first = False
        """Whether due mail had the odd place in the last claim."""
        self._older_first = False
        """Whether in the next one the odd place of several tenants goes to clusters."""

    async def mail(
        self,
        room: int,
        now: int,
        skip: Skip,
        overdue: Overdue | None = None,
        received_by: int | None = None,
        places: Places | None = None,
    ) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim`."""
        async with self._turn:
            if not self._shard.may_claim:
                return ()
            self._due_first = not self._due_first
            expiry = Expiry(overdue, received_by) if overdue else NOTHING_EXPIRES
            search = _Mail(self._shard, now, skip, expiry, places, self._older_first)
            # Not in step with the odd place: a claim of one place would always have the same side's turn.
            self._older_first ^= self._due_first
            return await search.run(search.mail(room, self._due_first))

    async def bounces(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_bounces`."""
        return await self._claim(self._shard.clock.now(), lambda search: _find_bounces(search, room))

    async def removed(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_removed`."""
        return await self._claim(self._shard.clock.now(), lambda search: _find_removed(search, room))

    async def held(self, domain: str, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_held`."""
        return await self._claim(_FOREVER, lambda search: _find_held(search, domain, room))

    async def _claim(self, now: int, find: Callable[[Search], Awaitable[None]]) -> Sequence[Recipient]:
        """What is due at `now` and found, when it is this claim's turn."""
        async with self._turn:
            if not self._shard.may_claim:
                return ()
            search = Search(self._shard, now)
            return await search.run(find(search))

    def held_domains(self) -> frozenset[str]:
        """The domains for which some rest; one whose mail an evacuation or a batch moves, too."""
        shard = self._shard
        resting = (
            shard.entries.waiting.held_domains(),
            shard.cluster_index.offers.held_domains(),
            shard.entries.moving_held,
        )
        return frozenset(chain.from_iterable(resting))

    async def reserve(self, names: Sequence[str]) -> None:
        """No claim reads these clusters from now on, see `Offers.reserve`."""
        async with self._turn:
            self._shard.cluster_index.offers.reserve(names)

    async def entries(self, wanted: Sequence[JournalEntry]) -> Sequence[Recipient]:
        """Claim these entries, as far as they rest, without a turn: a batch need not wait for the reads and
        frames of a search. All are claimed before the first await (docs/internals.md, "What may run at the
        same time")."""
        search = Search(self._shard, self._shard.clock.now())
        return await search.run(_find_entries(search, wanted))

    def give_back(self, recipients: Sequence[Recipient]) -> None:
        """Release what `entries` has claimed."""
        entries = self._shard.entries
        for recipient in recipients:
            entries.release(entries.active.pop(recipient.key))
        self._shard.notify()

    def next_due(self) -> int | None:
        """When the first unclaimed mail is due, ms; 0 for new mail."""
        if not self._shard.ready:
            return None
        offers = self._shard.cluster_index.offers
        if offers.has(Area.INCOMING):
            return 0
        times = (self._shard.entries.waiting.next_due(), offers.next_due(), offers.next_due(Area.HELD))
        return min((time for time in times if time is not None), default=None)


def overdue_share(room: int, due_first: bool) -> int:
    """How much of a claim's room overdue recipients of suspended domains may fill before all others: on a
    busy server nothing would be left for them. Of one to three places it is one, in every other claim."""
    return room // 4 or int(not due_first)


def ended_share(room: int) -> int:
    """What these may fill together with held mail whose time has ended."""
    return room // 4 or 1


def due_share(room: int, due_first: bool) -> int:
    """How much of what is left due mail may fill before new mail has had its turn."""
    return room // 2 + (room % 2 if due_first else 0)


def older_share(most: int, found: int, several: bool, older_first: bool) -> int:
    """Of `most` places for new or due mail, `found` of them taken, how many may be taken when older mail has
    had its turn: all, but of several tenants half of what is left."""
    return most - (most - found + (not older_first)) // 2 if several else most


class _Mail(Search):
    """The search for new and due mail, and for what must expire though its domain is suspended."""

    def __init__(
        self, shard: Shard, now: int, skip: Skip, expiry: Expiry, places: Places | None, older_first: bool
    ) -> None:
        """`older_first`: whether the odd place of several tenants goes to clusters."""
        super().__init__(shard, now, skip, expiry, places)
        self._older_first = older_first
        self._asks = ASKED_AT_ONCE
        """Records that it may still read to see whether their recipients are overdue."""

    async def mail(self, room: int, due_first: bool) -> None:
        """Find new and due mail; the odd place and the first turn go to each side alternately."""
        waiting = self.shard.entries.waiting
        try:
            if room:
                await self._ask(overdue_share(room, due_first))
                await self.at_end(Area.HELD, waiting.pop_held_end, ended_share(room))
                await self._halves(room - len(self.found), due_first)
                await self._ask(room)
            if self.places is not None and self.places.extra:
                await self._extra(self.places, len(self.found) + self.places.extra)
        finally:
            # One that lets nothing expire has asked about none, and another one would not either.
            asks = room and self.expiry is not NOTHING_EXPIRES
            if self.passing.left <= 0 or (asks and waiting.has_aged):
                asyncio.get_running_loop().call_soon(self.shard.notify)

    async def _halves(self, room: int, due_first: bool) -> None:
        new: list[JournalEntry] = []
        due: list[JournalEntry] = []
        try:
            # Each side has half of the passes too: many suspended recipients must not delay new mail.
            self.passing.keep_half()
            await self._due(due_share(room, due_first), due)
            self.passing.return_half()
            await self._new(room - len(due), new)
            await self._due(room - len(new), due)
        finally:
            for pair in zip_longest(*((due, new) if due_first else (new, due))):
                self.found += [entry for entry in pair if entry is not None]

    async def _new(self, most: int, found: list[JournalEntry]) -> None:
        waiting = self.shard.entries.waiting
        await self.pop(waiting.pop_urgent, waiting.urgent_share(most), found)
        offers = self.shard.cluster_index.offers
        await self._in_turn(
            lambda: offers.first(Area.INCOMING),
            offers.tenants(Area.INCOMING),
            waiting.pop_new,
            waiting.tenants,
            most,
            found,
        )

    async def _in_turn(
        self,
        first: Callable[[], str | None],
        older: Collection[str],
        pop: Callable[[], JournalEntry | None],
        newer: Collection[str],
        most: int,
        found: list[JournalEntry],
    ) -> None:
        """Claim a share from clusters, which have the `older` tenants' mail; then from the journal, which has
        that of `newer`; what this leaves, from clusters. `most` is how long `found` may become."""
        several = bool(older) and len({*older, *newer}) > 1
        share = older_share(most, len(found), several, self._older_first)
        await self.load(first, share, found, older)
        await self.pop(pop, most, found)
        await self.load(first, most, found, older)

    async def _extra(self, places: Places, most: int) -> None:
        """Claim new mail of tenants that have further places."""
        await self.pop(lambda: self.shard.entries.waiting.pop_extra(places.take), most, self.found)

    async def _due(self, most: int, found: list[JournalEntry]) -> None:
        offers, waiting, passing = self.shard.cluster_index.offers, self.shard.entries.waiting, self.passing
        await self._in_turn(
            lambda: offers.first_due(self.now),
            offers.due_tenants(self.now),
            lambda: waiting.pop_due(self.now, passing.skip, self.expiry.received_by),
            waiting.due_tenants(self.now),
            most,
            found,
        )

    async def _ask(self, most: int) -> None:
        """Claim overdue recipients of domains whose suspension was renewed. What is not claimed stays in its
        bucket."""
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
                self.put_off(entry, recipient)
            elif expiry.overdue(recipient):
                entry.due = 0
                entry.on(Event.CLAIM)
                self.found.append(entry)
            else:
                entry.recipient, entry.raw = None, b""


async def _find_bounces(search: Search, room: int) -> None:
    """Find bounces to report on."""
    offers, waiting = search.shard.cluster_index.offers, search.shard.entries.waiting
    await search.load(lambda: offers.first(Area.BOUNCES), room, search.found)
    await search.pop(lambda: waiting.pop_bounce(search.now), room, search.found)


async def _find_removed(search: Search, room: int) -> None:
    """Find removals whose grace is over."""
    await search.at_end(Area.REMOVED, search.shard.entries.waiting.pop_removed, room)


async def _find_held(search: Search, domain: str, room: int) -> None:
    """Find what rests for a domain; clusters have the older mail."""
    offers, waiting = search.shard.cluster_index.offers, search.shard.entries.waiting
    await search.load(lambda: offers.first_held(domain), room, search.found)
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


async def _find_entries(search: Search, wanted: Sequence[JournalEntry]) -> None:
    """Claim entries by name."""
    for entry in wanted:
        if entry.resting:
            entry.on(Event.CLAIM)
            search.found.append(entry)
