"""The reading half of the store: which recipients may be tried now.

Entries are claimed in memory alone: their home does not change. Records in clusters move into the
journal first, by a TAKE frame. Half of the room goes to new mail and half to mail that has become due;
what one side leaves, the other takes. A recipient whose domain is suspended is passed over: an entry
stands aside with its domain (see `waiting`), a cluster line moves into the journal and does the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.model import Area, Recipient
from mqcd.core.spid import format_spid
from mqcd.disk.durable import describe
from mqcd.disk.uncancellable import in_thread, uncancellable
from mqcd.queue.clusters.index import Taken, entry_of
from mqcd.queue.clusters.quarantine import to_quarantine
from mqcd.queue.format.frame import ALIVE, ENTRY_HEAD, IN_SPOOL, Entry, Kind, Mark, pack_entry, pack_take
from mqcd.queue.memory.ready import is_old
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry, Segment

log = logging.getLogger(__name__)

_AGAIN_MS = 10_000
"""How long after a failure of the disk a read is tried again."""
PASSED_AT_ONCE = 500
"""Suspended recipients after which a claim takes no more; who claimed is then told to ask again. What the
same claim has found for others waits for as long as these take to stand aside, or to move from a cluster."""
TAKEN_AT_ONCE = 250
"""Lines that one frame takes out of a cluster: all of them find their places in one turn of the loop."""
ASKED_AT_ONCE = 50
"""Old recipients of whom one claim asks whether they are overdue; each has to be read for it."""

Skip = Mapping[str, int]
Overdue = Callable[[Recipient], bool]


class Claims:
    """Claims recipients of one shard, one claim at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._turn = asyncio.Lock()
        self._odd_to_due = False
        self._overdue: Overdue | None = None
        """Whom the claim under way passes over no longer."""
        self._received_by: int | None = None
        """Nobody who was accepted later is so, ms; None = anybody may be."""
        self._passes = 0
        """How many suspended recipients the claim under way may still pass over."""
        self._asks = 0
        """Of how many of them it may still ask whether they are overdue."""

    async def mail(
        self,
        room: int,
        now: int,
        skip: Skip,
        overdue: Overdue | None = None,
        received_by: int | None = None,
    ) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim`."""
        async with self._turn:
            self._overdue, self._received_by = overdue, received_by
            self._asks = ASKED_AT_ONCE
            if not self._may_claim():
                return ()
            found: list[JournalEntry] = []
            try:
                # First, and with a share of the room: a busy server would never come to it otherwise.
                self._ask(room // 4 or int(self._odd_to_due), now, found)
                await self._halves(room - len(found), now, skip, found)
                self._ask(room, now, found)
            except asyncio.CancelledError:
                self._give_back(found)
                raise
            finally:
                if self._passes <= 0 or self._shard.waiting.to_ask:
                    asyncio.get_running_loop().call_soon(self._shard.notify)
            return self._hand_out(found)

    async def _halves(self, room: int, now: int, skip: Skip, found: list[JournalEntry]) -> None:
        """Half of the room for each side; the odd place goes to each in turn."""
        new: list[JournalEntry] = []
        due: list[JournalEntry] = []
        self._odd_to_due = not self._odd_to_due
        half = room // 2 + (room % 2 if self._odd_to_due else 0)
        try:
            # Half of these too, or a backlog of dead destinations would keep new mail waiting.
            self._passes = PASSED_AT_ONCE // 2
            await self._due(half, now, skip, due)
            self._passes += PASSED_AT_ONCE // 2
            await self._new(room - len(due), now, skip, new)
            await self._due(room - len(new), now, skip, due)
        finally:
            first, second = (due, new) if self._odd_to_due else (new, due)
            for pair in zip_longest(first, second):
                found += [entry for entry in pair if entry is not None]

    async def bounces(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_bounces`."""
        async with self._turn:
            if not self._may_claim():
                return ()
            now = self._shard.clock.now()
            found: list[JournalEntry] = []
            self._passes = PASSED_AT_ONCE
            try:
                while (
                    len(found) < room and (name := self._shard.cluster_index.first(Area.BOUNCES)) is not None
                ):
                    if not await self._take(name, room - len(found), now, {}, found):
                        break
            except asyncio.CancelledError:
                self._give_back(found)
                raise
            self._pop(lambda: self._shard.waiting.pop_bounce(now), room, {}, now, found)
            return self._hand_out(found)

    def _may_claim(self) -> bool:
        """Nothing is tried whose verdict could not be recorded."""
        shard = self._shard
        return shard.ready and not (shard.ring.full or shard.journal.failing)

    def next_due(self) -> int | None:
        """When the first unclaimed mail is due, ms; 0 for new mail."""
        if not self._shard.ready:
            return None
        cluster_index = self._shard.cluster_index
        if cluster_index.first(Area.INCOMING) is not None:
            return 0
        times = [
            time for time in (self._shard.waiting.next_due(), cluster_index.next_due()) if time is not None
        ]
        return min(times, default=None)

    def _goes_on(self, found: list[JournalEntry], room: int) -> bool:
        """Whether a claim takes more: all that it moves must leave the journal room for verdicts."""
        return len(found) < room and self._passes > 0 and self._may_claim()

    async def _new(self, room: int, now: int, skip: Skip, found: list[JournalEntry]) -> None:
        # Clusters hold what came before all that is in the journal.
        while (
            self._goes_on(found, room)
            and (name := self._shard.cluster_index.first(Area.INCOMING)) is not None
        ):
            if not await self._take(name, room - len(found), now, skip, found):
                break
        self._pop(self._shard.waiting.pop_new, room, skip, now, found)

    async def _due(self, room: int, now: int, skip: Skip, found: list[JournalEntry]) -> None:
        while self._goes_on(found, room) and (name := self._shard.cluster_index.first_due(now)) is not None:
            if not await self._take(name, room - len(found), now, skip, found):
                break
        waiting, received_by = self._shard.waiting, self._received_by if self._overdue else 0
        self._pop(lambda: waiting.pop_due(now, skip, received_by), room, skip, now, found)

    def _pop(
        self,
        pop: Callable[[], JournalEntry | None],
        room: int,
        skip: Skip,
        now: int,
        found: list[JournalEntry],
    ) -> None:
        shard = self._shard
        while len(found) < room and self._passes > 0 and (entry := pop()) is not None:
            until = skip.get(entry.domain, 0) if skip else 0
            overdue = self._overdue if is_old(entry, self._received_by) else None
            recipient = None
            if until <= now or overdue is not None:
                recipient = entry.recipient or self._load(entry, now)
                if recipient is None:
                    continue
            if until <= now or (recipient is not None and overdue is not None and overdue(recipient)):
                entry.on(Event.CLAIM)
                found.append(entry)
            else:
                shard.waiting.pass_over(entry, min(until, shard.latest_due()), now)
                self._passes -= 1

    def _ask(self, room: int, now: int, found: list[JournalEntry]) -> None:
        """Of those whose domains are passed over once more, take who is overdue."""
        waiting, overdue = self._shard.waiting, self._overdue
        if overdue is None:
            return
        while self._asks > 0 and len(found) < room:
            entry = waiting.pop_aged(self._received_by)
            if entry is None:
                return
            self._asks -= 1
            recipient = self._load(entry, now)
            if recipient is None:
                continue
            if overdue(recipient):
                entry.due = 0
                entry.on(Event.CLAIM)
                found.append(entry)
            else:
                entry.recipient, entry.raw = None, b""

    def _load(self, entry: JournalEntry, now: int) -> Recipient | None:
        """The entry's recipient; None when it cannot be read now, and it waits for a better time."""
        shard = self._shard
        try:
            return shard.load(entry)
        except (OSError, DecodeError) as error:
            place = entry.segment.path, entry.offset
            log.error("%s: record at octet %d cannot be read: %s", *place, error)
            damaged = isinstance(error, DecodeError)
            entry.due = now + (shard.options.schedule.delays[0] if damaged else _AGAIN_MS)
            entry.on(Event.RELEASE)
            shard.waiting.add(entry)
            return None

    def _give_back(self, found: list[JournalEntry]) -> None:
        for entry in found:
            entry.on(Event.RELEASE)
            self._shard.waiting.add(entry)

    def _hand_out(self, found: list[JournalEntry]) -> Sequence[Recipient]:
        shard = self._shard
        recipients = []
        now = shard.clock.now()
        for entry in found:
            recipient = entry.recipient or self._load(entry, now)
            if recipient is None:
                continue
            if recipient.key in shard.active:
                self._put_off(entry, now)
                continue
            shard.active[recipient.key] = entry
            recipients.append(recipient)
        return recipients

    def _put_off(self, entry: JournalEntry, now: int) -> None:
        """Only damage gives a recipient two homes: both are kept, and never in flight together, for a verdict
        must end the one that was tried."""
        name = f"{format_spid(entry.spid)}/{entry.qid}"
        log.error("recipient %s is recorded twice; run `mqcd fsck`", name)
        entry.due = now + _AGAIN_MS
        entry.on(Event.RELEASE)
        self._shard.waiting.add(entry)

    async def _take(self, name: str, room: int, now: int, skip: Skip, found: list[JournalEntry]) -> bool:
        """Move records of a cluster into the journal; False when the journal takes nothing now.

        A cluster that cannot be read is set aside: it must not hold up the others.
        """
        shard = self._shard
        want = min(room + (self._passes if skip else 0), TAKEN_AT_ONCE, shard.journal.max_entries)
        # The other half is for the heads of the entries, and a long last line.
        most = shard.journal.frame_room // 2
        try:
            # A claim that is cancelled waits for the thread, or the next one would read beside it.
            taken = await in_thread(shard.executor, shard.cluster_index.read, name, want, now, most)
            for find in taken.finds:
                await in_thread(shard.executor, to_quarantine, shard.disk, shard.queue_root, name, *find)
        except (DecodeError, FileNotFoundError) as error:
            log.error("cluster %s cannot be read: %s; run `mqcd fsck`", name, error)
            shard.cluster_index.set_aside(name)
            return True
        except OSError as error:
            log.error("cluster %s cannot be read and will be tried again: %s", name, describe(error))
            shard.cluster_index.set_aside(name)
            shard.later(_AGAIN_MS, lambda: self._bring_back(name))
            return True
        before = shard.cluster_index.clusters[name]
        if not taken.lines and taken.state.cursor == before.cursor:
            # After a crash a cluster's due time may be that of records that were taken from it.
            shard.cluster_index.add(replace(before, due=taken.state.due))
            return True
        try:
            await self._move_in(taken, room, now, skip, found)
        except StoreUnavailable:
            return False
        return True

    def _bring_back(self, name: str) -> None:
        """Offer a cluster again that could not be read."""
        shard = self._shard
        if (state := shard.cluster_index.clusters.get(name)) is not None:
            shard.cluster_index.add(state)
            shard.notify()

    async def _move_in(
        self, taken: Taken, room: int, now: int, skip: Skip, found: list[JournalEntry]
    ) -> None:
        shard = self._shard
        frame_entries = [Entry(Mark.TAKEN, ALIVE, 0, 0, IN_SPOOL, raw, b"") for raw, _ in taken.lines]
        parts = [pack_take(taken.head), *map(pack_entry, frame_entries)]

        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            before = shard.cluster_index.clusters[taken.state.name]
            shard.accounts.take(
                before.area, before.left - taken.state.left, before.octets - taken.state.octets
            )
            shard.cluster_index.advance(taken.state)
            shard.figures.quarantined += taken.bad
            at = body + len(parts[0])
            taking = 0
            for raw, glance in taken.lines:
                entry = entry_of(glance)
                entry.raw = raw
                shard.settle_in(entry, segment, ordinal, at + ENTRY_HEAD, len(raw))
                until = skip.get(entry.domain, 0)
                if entry.due > now and entry.area is Area.DEFERRED:
                    # Its place was before one that has been expedited.
                    entry.due, entry.raw = min(entry.due, latest), b""
                    shard.waiting.add(entry)
                    self._passes -= 1
                elif until > now:
                    shard.waiting.pass_over(entry, min(until, latest), now)
                    self._passes -= 1
                # Who claimed may have been cancelled meanwhile: the records have moved all the same.
                elif cancelled or taking >= room:
                    entry.due, entry.raw = min(entry.due, latest), b""
                    shard.waiting.add(entry)
                    self._passes -= 1
                else:
                    entry.on(Event.CLAIM)
                    found.append(entry)
                    taking += 1
                ordinal += 1
                at += ENTRY_HEAD + len(raw)

        cancelled = False
        latest = shard.latest_due()
        durable = shard.journal.append(Kind.TAKE, parts, len(frame_entries), shard.clock.now(), placed)
        try:
            await asyncio.shield(durable)
        except asyncio.CancelledError:
            cancelled = True
            # The cluster index must know of this take before the next turn, which would read the same lines.
            await uncancellable(durable)
            raise
