"""What one claim has found so far: entries in flight, which a claim that ends early gives back.

`Search` has what all searches share: how entries are claimed one by one, and how records of clusters are
loaded. What is searched, and in which order, is in `claim`. `most` is how long `found` may become.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto

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

Overdue = Callable[[Recipient], bool]


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which recipients of suspended domains a claim hands out nevertheless, to be expired."""

    overdue: Overdue
    received_by: int | None
    """Recipients accepted later than this are not overdue, ms; None = any may be."""


class Choice(Enum):
    """What becomes of an entry whose turn has come."""

    CLAIM = auto()
    PASS_OVER = auto()
    """Its domain takes no mail, and it is not overdue: it waits in the domain's bucket."""
    PUT_OFF = auto()
    """Its record cannot be read now."""


# As globals: on Python 3.11 an attribute of an Enum takes ten times as long.
_CLAIM, _PASS_OVER, _PUT_OFF = Choice.CLAIM, Choice.PASS_OVER, Choice.PUT_OFF


def choose(recipient: Recipient | None, overdue: Overdue | None) -> Choice:
    """By the record, None if it cannot be read. `overdue`: which may be claimed; None = all. Pure."""
    if recipient is None:
        return _PUT_OFF
    return _CLAIM if overdue is None or overdue(recipient) else _PASS_OVER


class Search:
    """The search of one claim."""

    def __init__(
        self,
        shard: Shard,
        now: int,
        skip: Skip | None = None,
        expiry: Expiry | None = None,
        places: Places | None = None,
    ) -> None:
        """`skip`: domains that are passed over, None = none is; `expiry`: None = nothing expires, suspended
        domains are passed over whole."""
        self.shard = shard
        self.now = now
        self.places = places
        self.passing = Passing(shard, now, skip or {}, places)
        self.loader = Loader(shard, now, self.passing)
        self.expiry = expiry
        self.found: list[JournalEntry] = []

    async def run(self, search: Awaitable[None]) -> Sequence[Recipient]:
        """The recipients that `search` finds, now in flight; a cancelled claim gives them back."""
        try:
            await search
            readable = []
            for entry in tuple(self.found):
                recipient = entry.recipient or await self.read(entry)
                if recipient is None:
                    self.found.remove(entry)
                    self.release(entry)
                else:
                    readable.append((entry, recipient))
            return self._hand_out(readable)
        except asyncio.CancelledError:
            for entry in self.found:
                self.release(entry)
            raise

    def may_load(self, found: list[JournalEntry], most: int) -> bool:
        """Whether another cluster may be read: what it moves must leave the journal room for verdicts."""
        return len(found) < most and self.passing.left > 0 and may_claim(self.shard)

    async def load(
        self,
        first: Callable[[], str | None],
        most: int,
        found: list[JournalEntry],
        tenants: Collection[str] = (),
    ) -> None:
        """Claim records of clusters, of the `first` one each time, until it names none; where `first` takes
        turns between `tenants`, of each no more than its part."""
        while self.may_load(found, most) and (name := first()) is not None:
            room = -((len(found) - most) // max(len(tenants), 1))
            if not await self.loader.load(name, room, found):
                break

    async def pop(self, pop: Callable[[], JournalEntry | None], most: int, found: list[JournalEntry]) -> None:
        """Claim entries in the order of `pop`; those of suspended domains only if they are overdue."""
        passing, expiry = self.passing, self.expiry
        while len(found) < most and passing.left > 0 and (entry := pop()) is not None:
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
            choice = choose(entry.recipient or await self.read(entry), overdue)
            if choice is _CLAIM:
                continue
            found.pop()
            if choice is _PUT_OFF:
                self.release(entry)
            else:
                entry.on(Event.RELEASE)
                passing.over(entry)

    async def at_end(self, area: Area, pop: Callable[[int], JournalEntry | None], most: int) -> None:
        """Find what is due in an area, in clusters and then in the journal."""
        offers = self.shard.cluster_index.offers
        await self.load(lambda: offers.first_due(self.now, area), most, self.found)
        await self.pop(lambda: pop(self.now), most, self.found)

    async def read(self, entry: JournalEntry) -> Recipient | None:
        """The entry's recipient; None when it cannot be read now: then its due time is later.

        A damaged record is put off, and not quarantined here: reading it again may help, no frame ends a
        recipient without a verdict, and the evacuation of its segment quarantines it (`helper.jobs`).
        """
        try:
            return await self.shard.recipient(entry)
        except (OSError, DecodeError) as error:
            log.error("%s: record at octet %d cannot be read: %s", entry.segment.path, entry.offset, error)
            damaged = isinstance(error, DecodeError)
            later = self.shard.options.schedule.delays[0] if damaged else RETRY_MS
            # What waits stands in line by its due time: it was claimed and given back meanwhile (`claim`).
            if entry.state is not State.WAITING:
                # Not `now`: a claim without regard to due times has none.
                entry.due = self.shard.clock.now() + later
            return None

    def release(self, entry: JournalEntry) -> None:
        """Give an entry up: it waits for its due time."""
        entry.on(Event.RELEASE)
        self.shard.entries.waiting.add(entry)

    def _hand_out(self, found: Sequence[tuple[JournalEntry, Recipient]]) -> Sequence[Recipient]:
        shard = self.shard
        recipients = []
        for entry, recipient in found:
            if recipient.key in shard.entries.active:
                self._put_off(entry)
            else:
                shard.entries.active[recipient.key] = entry
                recipients.append(recipient)
        return recipients

    def _put_off(self, entry: JournalEntry) -> None:
        """Release one of two records of a recipient, which only damage makes: both are kept, and never in
        flight together, for a verdict must end the one that was tried."""
        log.error("recipient %s/%d is recorded twice; run `mqcd fsck`", format_spid(entry.spid), entry.qid)
        entry.due = self.shard.clock.now() + RETRY_MS
        self.release(entry)
