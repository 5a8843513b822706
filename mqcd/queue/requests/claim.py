"""Claims: which recipients may be tried now.

A claim takes half of its room from new mail and half from mail that has become due; what one side leaves, the
other takes. New mail of several tenants takes turns; of what is in clusters, whose tenants are not known, so
does half. Entries of the journal are claimed in memory alone. Records in clusters move into the journal
first (`load`). A recipient whose domain is suspended is passed over: its entry waits in the domain's bucket
(`memory.ready`).

A claim ends when its room is full, when nothing is due, when it has passed over `PASSED_AT_ONCE` recipients,
or when the journal takes no new work. One that ends early wakes the claimers, so that they claim again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain, zip_longest

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.buckets import is_old
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.load import RETRY_MS, Loader, Passing, Skip, may_claim
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry

log = logging.getLogger(__name__)

ASKED_AT_ONCE = 50
"""Old recipients of suspended domains whose records one claim reads to see whether they are overdue."""

Overdue = Callable[[Recipient], bool]
_NEVER = 0
"""A `received_by` that no recipient meets."""


@dataclass(frozen=True, slots=True)
class _Expiry:
    """Which recipients of suspended domains a claim hands out nevertheless, to be expired."""

    overdue: Overdue
    received_by: int | None
    """Recipients accepted later than this are not overdue, ms; None = any may be."""


_FOREVER = 1 << 62


class _Choice(Enum):
    """What becomes of an entry whose turn has come."""

    CLAIM = auto()
    PASS_OVER = auto()
    """Its domain takes no mail, and it is not overdue: it waits in the domain's bucket."""
    PUT_OFF = auto()
    """Its record cannot be read now."""


# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_CLAIM, _PASS_OVER, _PUT_OFF = _Choice.CLAIM, _Choice.PASS_OVER, _Choice.PUT_OFF


def _choose(recipient: Recipient | None, overdue: Overdue | None) -> _Choice:
    """By the record, None if it cannot be read. `overdue`: who may be claimed; None = all. Pure."""
    if recipient is None:
        return _PUT_OFF
    return _CLAIM if overdue is None or overdue(recipient) else _PASS_OVER


class Claims:
    """Claims recipients of one shard, one claim at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._turn = asyncio.Lock()
        self._due_first = False
        """Which side of the last claim had the odd place."""

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
            if not may_claim(self._shard):
                return ()
            self._due_first = not self._due_first
            expiry = _Expiry(overdue, received_by) if overdue else None
            claim = _Claim(self._shard, now, skip, expiry, places)
            return await claim.run(claim.mail(room, self._due_first))

    async def bounces(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_bounces`."""
        async with self._turn:
            if not may_claim(self._shard):
                return ()
            claim = _Claim(self._shard, self._shard.clock.now(), {}, None)
            return await claim.run(claim.bounces(room))

    async def removed(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_removed`."""
        async with self._turn:
            if not may_claim(self._shard):
                return ()
            claim = _Claim(self._shard, self._shard.clock.now(), {}, None)
            return await claim.run(claim.removed(room))

    async def held(self, domain: str, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_held`."""
        async with self._turn:
            if not may_claim(self._shard):
                return ()
            claim = _Claim(self._shard, _FOREVER, {}, None)
            return await claim.run(claim.held(domain, room))

    def held_domains(self) -> frozenset[str]:
        """The domains for which some rest; one whose mail an evacuation moves, too."""
        shard = self._shard
        resting = (shard.waiting.held_domains(), shard.cluster_index.held_domains(), shard.moving_held)
        return frozenset(chain.from_iterable(resting))

    async def reserve(self, names: Sequence[str]) -> None:
        """No claim reads these clusters from now on, see `ClusterIndex.reserve`."""
        async with self._turn:
            self._shard.cluster_index.reserve(names)

    async def entries(self, wanted: Sequence[JournalEntry]) -> Sequence[Recipient]:
        """Claim these entries, as far as they rest."""
        claim = _Claim(self._shard, self._shard.clock.now(), {}, None)
        return await claim.run(claim.these(wanted))

    def give_back(self, recipients: Sequence[Recipient]) -> None:
        """Release what `entries` has claimed."""
        for recipient in recipients:
            entry = self._shard.active.pop(recipient.key)
            entry.on(Event.RELEASE)
            self._shard.waiting.add(entry)

    def next_due(self) -> int | None:
        """When the first unclaimed mail is due, ms; 0 for new mail."""
        if not self._shard.ready:
            return None
        index = self._shard.cluster_index
        if index.first(Area.INCOMING) is not None:
            return 0
        times = (self._shard.waiting.next_due(), index.next_due(), index.next_due(Area.HELD))
        return min((time for time in times if time is not None), default=None)


class _Claim:
    """One claim."""

    def __init__(
        self, shard: Shard, now: int, skip: Skip, expiry: _Expiry | None, places: Places | None = None
    ) -> None:
        self._shard = shard
        self._now = now
        self._places = places
        self._passing = Passing(shard, now, skip, places)
        self._loader = Loader(shard, now, self._passing)
        self._expiry = expiry
        """None = nothing expires: suspended domains are passed over whole."""
        self._found: list[JournalEntry] = []
        self._asks = ASKED_AT_ONCE

    async def run(self, search: Awaitable[None]) -> Sequence[Recipient]:
        """The recipients that `search` finds, now in flight; a cancelled claim gives them back."""
        try:
            await search
            readable = []
            for entry in tuple(self._found):
                recipient = entry.recipient or await self._read_or_put_off(entry)
                if recipient is None:
                    self._found.remove(entry)
                    self._release(entry)
                else:
                    readable.append((entry, recipient))
            return self._hand_out(readable)
        except asyncio.CancelledError:
            for entry in self._found:
                self._release(entry)
            raise

    async def mail(self, room: int, due_first: bool) -> None:
        """Find new and due mail; the odd place and the first turn go to each side alternately."""
        try:
            if room:
                # Expiry gets a share of the room first: on a busy server nothing would be left for it.
                await self._ask(room // 4 or int(not due_first))
                await self._at_end(Area.HELD, self._shard.waiting.pop_held_end, room // 4 or 1)
                await self._halves(room - len(self._found), due_first)
                await self._ask(room)
            await self._extra()
        finally:
            if self._passing.left <= 0 or (room and self._shard.waiting.has_aged):
                asyncio.get_running_loop().call_soon(self._shard.notify)

    async def _halves(self, room: int, due_first: bool) -> None:
        new: list[JournalEntry] = []
        due: list[JournalEntry] = []
        try:
            # Each side has half of the passes too: many suspended recipients must not delay new mail.
            self._passing.keep_half()
            await self._due(room // 2 + (room % 2 if due_first else 0), due)
            self._passing.return_half()
            await self._new(room - len(due), new)
            await self._due(room - len(new), due)
        finally:
            for pair in zip_longest(*((due, new) if due_first else (new, due))):
                self._found += [entry for entry in pair if entry is not None]

    async def bounces(self, room: int) -> None:
        """Find bounces to report on."""
        index, waiting = self._shard.cluster_index, self._shard.waiting
        while len(self._found) < room and (name := index.first(Area.BOUNCES)) is not None:
            if not await self._loader.load(name, room - len(self._found), self._found):
                break
        await self._pop(lambda: waiting.pop_bounce(self._now), room, self._found)

    async def removed(self, room: int) -> None:
        """Find removals whose grace is over."""
        await self._at_end(Area.REMOVED, self._shard.waiting.pop_removed, room)

    async def _at_end(self, area: Area, pop: Callable[[int], JournalEntry | None], room: int) -> None:
        """Find what has been at rest for as long as it may be."""
        index = self._shard.cluster_index
        while len(self._found) < room and (name := index.first_due(self._now, area)) is not None:
            if not await self._loader.load(name, room - len(self._found), self._found):
                break
        await self._pop(lambda: pop(self._now), room, self._found)

    async def held(self, domain: str, room: int) -> None:
        """Find what rests for a domain; clusters have the older mail."""
        index, waiting = self._shard.cluster_index, self._shard.waiting
        while self._goes_on(self._found, room) and (name := index.first_held(domain)) is not None:
            if not await self._loader.load(name, room - len(self._found), self._found):
                break
        popped: set[JournalEntry] = set()

        def pop() -> JournalEntry | None:
            entry = waiting.pop_held(domain)
            if entry is None or entry not in popped:
                popped.update([entry] if entry is not None else ())
                return entry
            # It could not be read, and rests again: this claim would meet it for ever.
            waiting.add(entry)
            return None

        await self._pop(pop, room, self._found)

    async def these(self, wanted: Sequence[JournalEntry]) -> None:
        """Claim entries by name."""
        for entry in wanted:
            if entry.resting:
                entry.on(Event.CLAIM)
                self._found.append(entry)

    async def _new(self, room: int, found: list[JournalEntry]) -> None:
        waiting = self._shard.waiting
        await self._pop(waiting.pop_urgent, waiting.urgent_share(room), found)
        # Clusters hold older mail than the journal. Of several tenants one may have filled them.
        older = self._shard.cluster_index.tenants
        kept = (room - len(found)) // 2 if older and len(older | waiting.tenants) > 1 else 0
        await self._older(room - kept, found)
        await self._pop(waiting.pop_new, room, found)
        await self._older(room, found)

    async def _older(self, room: int, found: list[JournalEntry]) -> None:
        """Claim new mail that is in clusters, oldest first."""
        index = self._shard.cluster_index
        while self._goes_on(found, room) and (name := index.first(Area.INCOMING)) is not None:
            before = len(found)
            if not await self._loader.load(name, room - before, found):
                break
            index.tenants = {entry.tenant for entry in found[before:]} or index.tenants

    async def _extra(self) -> None:
        """Claim new mail of tenants that have further places."""
        places, waiting = self._places, self._shard.waiting
        if places is not None and places.extra:
            most = len(self._found) + places.extra
            await self._pop(lambda: waiting.pop_extra(places.take), most, self._found)

    async def _due(self, room: int, found: list[JournalEntry]) -> None:
        index, waiting, passing = self._shard.cluster_index, self._shard.waiting, self._passing
        while self._goes_on(found, room) and (name := index.first_due(self._now)) is not None:
            if not await self._loader.load(name, room - len(found), found):
                break
        received_by = self._expiry.received_by if self._expiry is not None else _NEVER
        await self._pop(lambda: waiting.pop_due(self._now, passing.skip, received_by), room, found)

    def _goes_on(self, found: list[JournalEntry], room: int) -> bool:
        """Whether another cluster may be read: what it moves must leave the journal room for verdicts."""
        return len(found) < room and self._passing.left > 0 and may_claim(self._shard)

    async def _pop(
        self, pop: Callable[[], JournalEntry | None], room: int, found: list[JournalEntry]
    ) -> None:
        """Claim entries in the order of `pop`; those of suspended domains only if they are overdue."""
        passing, expiry = self._passing, self._expiry
        while len(found) < room and passing.left > 0 and (entry := pop()) is not None:
            overdue = None
            if passing.suspended(entry):
                if expiry is None or not is_old(entry, expiry.received_by):
                    # Whatever its record says: it need not be read.
                    passing.over(entry)
                    continue
                overdue = expiry.overdue
            # Before it is read: nothing else may take it meanwhile.
            entry.on(Event.CLAIM)
            found.append(entry)
            choice = _choose(entry.recipient or await self._read_or_put_off(entry), overdue)
            if choice is _CLAIM:
                continue
            found.pop()
            if choice is _PUT_OFF:
                self._release(entry)
            else:
                entry.on(Event.RELEASE)
                passing.over(entry)

    async def _ask(self, room: int) -> None:
        """Claim overdue recipients of domains whose suspension was renewed."""
        waiting, expiry = self._shard.waiting, self._expiry
        while expiry is not None and self._asks > 0 and len(self._found) < room:
            entry = waiting.pop_aged(expiry.received_by)
            if entry is None:
                return
            self._asks -= 1
            choice = _choose(await self._read_or_put_off(entry), expiry.overdue)
            if choice is _PASS_OVER or entry.state is not State.PASSED_OVER:
                # It stays where it is, or was frozen by an evacuation while its record was read.
                entry.recipient, entry.raw = None, b""
            elif choice is _PUT_OFF:
                self._release(entry)
            else:
                entry.due = 0
                entry.on(Event.CLAIM)
                self._found.append(entry)

    async def _read_or_put_off(self, entry: JournalEntry) -> Recipient | None:
        """The entry's recipient; None when it cannot be read now: then its due time is later.

        A damaged record is put off, and not quarantined here: reading it again may help, no frame ends a
        recipient without a verdict, and the evacuation of its segment quarantines it (`helper.jobs`).
        """
        try:
            return await self._shard.recipient(entry)
        except (OSError, DecodeError) as error:
            log.error("%s: record at octet %d cannot be read: %s", entry.segment.path, entry.offset, error)
            damaged = isinstance(error, DecodeError)
            later = self._shard.options.schedule.delays[0] if damaged else RETRY_MS
            # Not `_now`: a claim without regard to due times has none.
            entry.due = self._shard.clock.now() + later
            return None

    def _release(self, entry: JournalEntry) -> None:
        entry.on(Event.RELEASE)
        self._shard.waiting.add(entry)

    def _hand_out(self, found: Sequence[tuple[JournalEntry, Recipient]]) -> Sequence[Recipient]:
        shard = self._shard
        recipients = []
        for entry, recipient in found:
            if recipient.key in shard.active:
                self._put_off(entry)
            else:
                shard.active[recipient.key] = entry
                recipients.append(recipient)
        return recipients

    def _put_off(self, entry: JournalEntry) -> None:
        """Release one of two records of a recipient, which only damage makes: both are kept, and never in
        flight together, for a verdict must end the one that was tried."""
        log.error("recipient %s/%d is recorded twice; run `mqcd fsck`", format_spid(entry.spid), entry.qid)
        entry.due = self._shard.clock.now() + RETRY_MS
        self._release(entry)
