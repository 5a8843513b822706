"""What one claim has found so far: entries in flight, which a claim that ends early gives back.

`Search` has what all searches share: how entries are claimed one by one, and how records of clusters are
loaded. What is searched, and in which order, is in `claim`. `most` is how long `found` may become.

To load (`Loader`), records of a cluster move into the journal by a TAKE frame, which also moves the cluster's
cursor behind them. A cluster that cannot be read is set aside, so that it does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.turns import Places
from mqcd.disk.durable import describe
from mqcd.disk.waits import in_thread, uncancellable
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.clusters.reading import Taken, entry_of
from mqcd.queue.format.frame import ALIVE, ENTRY_HEAD, IN_SPOOL, Entry, Kind, Mark, pack_entry, pack_take
from mqcd.queue.memory.buckets import is_old
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

RETRY_MS = 10_000
"""How long after a failure of the disk a read is tried again."""
LOADED_AT_ONCE = 250
"""Lines that one frame takes from a cluster: the loop places all of them in one turn."""
PASSED_AT_ONCE = 500
"""Recipients that one claim may pass over, or load without claiming them."""

Skip = Mapping[str, int]
Overdue = Callable[[Recipient], bool]


class Passing:
    """Which recipients a claim passes over, and how many it still may."""

    def __init__(self, shard: Shard, now: int, skip: Skip, places: Places | None = None) -> None:
        self._places = places
        self._waiting = shard.entries.waiting
        self._now = now
        self.skip = skip
        """Suspended domains, and until when, ms."""
        self.latest = shard.latest_due()
        self.left = PASSED_AT_ONCE

    def keep_half(self) -> None:
        """Hold back half of what a whole claim may pass over, for the side that comes second."""
        self.left -= PASSED_AT_ONCE // 2

    def return_half(self) -> None:
        """Make it available."""
        self.left += PASSED_AT_ONCE // 2

    def suspended(self, entry: JournalEntry) -> bool:
        """Whether its domain takes no mail now. Held mail comes when it was asked for, or at its end."""
        if entry.area is Area.HELD or self.skip.get(entry.domain, 0) <= self._now:
            return False
        return self._places is None or not self._places.passes(entry.tenant, entry.domain)

    def over(self, entry: JournalEntry) -> None:
        """An entry of a suspended domain waits in the domain's bucket. One that was given up during a carry
        is found once more after it."""
        self.left -= 1
        if entry.resting:
            self._waiting.pass_over(entry, min(self.skip[entry.domain], self.latest), self._now)

    def wait(self, entry: JournalEntry) -> None:
        """A loaded entry that is not claimed waits for its time; its record is read again then."""
        self.left -= 1
        entry.raw = b""
        if entry.area not in (Area.HELD, Area.REMOVED):
            entry.due = min(entry.due, self.latest)
        self._waiting.add(entry)


class Loader:
    """Loads records for one claim."""

    def __init__(self, shard: Shard, now: int, passing: Passing) -> None:
        self._shard = shard
        self._now = now
        self._passing = passing

    async def load(self, name: str, room: int, found: list[JournalEntry]) -> bool:
        """Move records of a cluster into the journal and add at most `room` claimed entries to `found`.

        False when the journal takes nothing now.
        """
        shard = self._shard
        passes = self._passing.left if self._passing.skip else 0
        want = min(room + passes, LOADED_AT_ONCE, shard.journal.max_entries)
        # The other half is for the heads of the entries, and a long last line.
        most = shard.journal.frame_room // 2
        try:
            # A claim that is cancelled waits for the thread, or the next one would read beside it.
            read, cluster = shard.cluster_index.reader.read, shard.cluster_index.to_read(name)
            taken = await in_thread(shard.executor, read, *cluster, want, self._now, most)
            for find in taken.finds:
                await in_thread(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
        except (DecodeError, FileNotFoundError) as error:
            log.error("cluster %s cannot be read: %s; run `mqcd fsck`", name, error)
            shard.cluster_index.offers.set_aside(name)
            return True
        except OSError as error:
            log.error("cluster %s cannot be read and will be tried again: %s", name, describe(error))
            shard.cluster_index.offers.set_aside(name)
            shard.later(RETRY_MS, lambda: self._bring_back(name))
            return True
        before = shard.cluster_index.clusters[name]
        if not taken.lines and taken.state.cursor == before.cursor:
            # After a crash a cluster's due time may be that of records that were taken from it.
            shard.cluster_index.add(replace(before, due=taken.state.due))
            return True
        try:
            await self._move(taken, room, found)
        except StoreUnavailable:
            return False
        return True

    def _bring_back(self, name: str) -> None:
        """Offer a cluster again that could not be read."""
        self._shard.cluster_index.offers.bring_back(name)
        self._shard.notify()

    async def _move(self, taken: Taken, room: int, found: list[JournalEntry]) -> None:
        shard, passing = self._shard, self._passing
        frame_entries = [Entry(Mark.TAKEN, ALIVE, 0, 0, IN_SPOOL, raw, b"") for raw, _ in taken.lines]
        parts = [pack_take(taken.head), *map(pack_entry, frame_entries)]

        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            shard.taken(taken)
            at = body + len(parts[0])
            left = room
            for raw, glance in taken.lines:
                entry = entry_of(glance)
                entry.raw = raw
                shard.entries.place(entry, segment, ordinal, at + ENTRY_HEAD, len(raw))
                if passing.suspended(entry):
                    passing.over(entry)
                elif cancelled or not left:
                    passing.wait(entry)
                else:
                    entry.on(Event.CLAIM)
                    found.append(entry)
                    left -= 1
                ordinal += 1
                at += ENTRY_HEAD + len(raw)

        cancelled = False
        durable = shard.journal.append(Kind.TAKE, parts, len(frame_entries), shard.clock.now(), placed)
        try:
            await asyncio.shield(durable)
        except asyncio.CancelledError:
            # The records move all the same: the cluster index must know before the next claim reads it.
            cancelled = True
            await uncancellable(durable)
            raise


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
            self.shard.notify()
            raise

    def may_load(self, found: list[JournalEntry], most: int) -> bool:
        """Whether another cluster may be read: what it moves must leave the journal room for verdicts."""
        return len(found) < most and self.passing.left > 0 and self.shard.may_claim

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
        self.shard.entries.release(entry)

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
