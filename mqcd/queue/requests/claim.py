"""Claims: recipients that may be tried now become in flight, one search at a time.

| claim of | takes, from clusters and then from the journal |
|---|---|
| `mail` | new and due mail, by the rows in `requests.mail` |
| `bounces` | bounces to report on |
| `removed` | removals whose grace is over |
| `held` | what rests for a domain |
| `entries` | what a batch names, of the journal alone |

A claim returns what it has found when it ends. What becomes of an entry meanwhile is in `search`.

| a claim ends | it wakes the claimers |
|---|---|
| its room is full | no: what is left is due, see `next_due` |
| nothing more is due | no: `next_due` says when |
| it has passed over `PASSED_AT_ONCE` recipients (`passing`) | yes |
| it may expire mail, and leaves some to ask about (`MailSearch`) | yes |
| nothing may be claimed (`Shard.may_claim`): at a start | no: `ClusterStore._replay` does |
| in a full ring | no: `Evacuator._free` does |
| as the journal cannot be written | no: `Journal.on_mended` does |
| it is cancelled, or fails | yes: what it had waits again |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, cycle

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.mail import ODD_PLACES, MailSearch
from mqcd.queue.requests.passing import NOTHING_EXPIRES, Expiry, Overdue, Skip
from mqcd.queue.requests.search import Search
from mqcd.queue.wal.segments import JournalEntry

_FOREVER = 1 << 62
"""A time at which all is due."""


class Claims:
    """Claims recipients of one shard, one search at a time: only one may load records of a cluster, or pass
    entries over."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._turn = asyncio.Lock()
        self._odd_places = cycle(ODD_PLACES)

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
            expiry = Expiry(overdue, received_by) if overdue else NOTHING_EXPIRES
            search = MailSearch(self._shard, now, skip, expiry, places, next(self._odd_places))
            return await search.run(search.fill(room))

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

    async def entries(
        self, wanted: Sequence[JournalEntry]
    ) -> tuple[Sequence[Recipient], Sequence[JournalEntry]]:
        """Claim these entries, as far as they rest, without a turn: a batch need not wait for the reads and
        frames of a search. All are claimed before the first await (docs/internals.md, "What may run at the
        same time"). Also returns what rested and cannot be handed out now.

        Does not ask `may_claim`: what a batch records is written in a full ring, too.
        """
        search = Search(self._shard, self._shard.clock.now())
        return await search.run(_find_entries(search, wanted)), search.failed

    def give_back(self, recipients: Sequence[Recipient]) -> None:
        """Release what `entries` has claimed."""
        entries = self._shard.entries
        for recipient in recipients:
            entries.release(entries.active.pop(recipient.key))
        self._shard.notify()

    def next_due(self) -> int | None:
        """When the first unclaimed mail is due, ms; 0 for new mail. Bounces and removals are claimed by tasks
        with times of their own."""
        if not self._shard.ready:
            return None
        offers = self._shard.cluster_index.offers
        if offers.has(Area.INCOMING):
            return 0
        times = (self._shard.entries.waiting.next_due(), offers.next_due(), offers.next_due(Area.HELD))
        return min((time for time in times if time is not None), default=None)


async def _find_bounces(search: Search, room: int) -> None:
    offers, waiting = search.shard.cluster_index.offers, search.shard.entries.waiting
    await search.take(lambda: offers.first(Area.BOUNCES), lambda: waiting.pop_bounce(search.now), room)


async def _find_removed(search: Search, room: int) -> None:
    await search.take_due(Area.REMOVED, search.shard.entries.waiting.pop_removed, room)


async def _find_held(search: Search, domain: str, room: int) -> None:
    offers, waiting = search.shard.cluster_index.offers, search.shard.entries.waiting
    await search.take(lambda: offers.first_held(domain), lambda: waiting.pop_held(domain), room)


async def _find_entries(search: Search, wanted: Sequence[JournalEntry]) -> None:
    for entry in wanted:
        if entry.resting:
            search.claim(entry)
