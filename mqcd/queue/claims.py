"""The reading half of the store: which recipients may be tried now.

Residents are claimed in memory alone: their home does not change. Records in clusters move into the
journal first, by a TAKE frame. Half of the room goes to new mail and half to mail that has become due;
what one side leaves, the other takes. A recipient whose domain is suspended is passed over: a resident
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
from mqcd.queue.durable import told
from mqcd.queue.frame import ALIVE, ENTRY_HEAD, IN_SPOOL, Entry, Kind, Mark, pack_entry, pack_take
from mqcd.queue.patience import outlast
from mqcd.queue.quarantine import put_aside
from mqcd.queue.ring import Resident, Segment, State
from mqcd.queue.shard import Shard
from mqcd.queue.shelf import Taken, resident_of
from mqcd.queue.waiting import is_old

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
            if not self._may_claim():
                return ()
            found: list[Resident] = []
            try:
                await self._halves(room, now, skip, found)
                self._ask(room, now, found)
            except asyncio.CancelledError:
                self._give_back(found)
                raise
            finally:
                if self._passes <= 0 or self._shard.waiting.to_ask:
                    asyncio.get_running_loop().call_soon(self._shard.notify)
            return self._hand_out(found)

    async def _halves(self, room: int, now: int, skip: Skip, found: list[Resident]) -> None:
        """Half of the room for each side; the odd place goes to each in turn."""
        new: list[Resident] = []
        due: list[Resident] = []
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
                found += [resident for resident in pair if resident is not None]

    async def bounces(self, room: int) -> Sequence[Recipient]:
        """See `core.ports.QueueStore.claim_bounces`."""
        async with self._turn:
            if not self._may_claim():
                return ()
            now = self._shard.clock.now()
            found: list[Resident] = []
            self._passes = PASSED_AT_ONCE
            try:
                while len(found) < room and (name := self._shard.shelf.first(Area.BOUNCES)) is not None:
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
        shelf = self._shard.shelf
        if shelf.first(Area.INCOMING) is not None:
            return 0
        times = [time for time in (self._shard.waiting.next_due(), shelf.next_due()) if time is not None]
        return min(times, default=None)

    def _goes_on(self, found: list[Resident], room: int) -> bool:
        """Whether a claim takes more: all that it moves must leave the journal room for verdicts."""
        return len(found) < room and self._passes > 0 and self._may_claim()

    async def _new(self, room: int, now: int, skip: Skip, found: list[Resident]) -> None:
        # Clusters hold what came before all that is in the journal.
        while self._goes_on(found, room) and (name := self._shard.shelf.first(Area.INCOMING)) is not None:
            if not await self._take(name, room - len(found), now, skip, found):
                break
        self._pop(self._shard.waiting.pop_new, room, skip, now, found)

    async def _due(self, room: int, now: int, skip: Skip, found: list[Resident]) -> None:
        while self._goes_on(found, room) and (name := self._shard.shelf.first_due(now)) is not None:
            if not await self._take(name, room - len(found), now, skip, found):
                break
        waiting, received_by = self._shard.waiting, self._received_by if self._overdue else 0
        self._pop(lambda: waiting.pop_due(now, skip, received_by), room, skip, now, found)

    def _pop(
        self,
        pop: Callable[[], Resident | None],
        room: int,
        skip: Skip,
        now: int,
        found: list[Resident],
    ) -> None:
        shard = self._shard
        while len(found) < room and self._passes > 0 and (resident := pop()) is not None:
            until = skip.get(resident.domain, 0) if skip else 0
            overdue = self._overdue if is_old(resident, self._received_by) else None
            recipient = None
            if until <= now or overdue is not None:
                recipient = resident.recipient or self._load(resident, now)
                if recipient is None:
                    continue
            if until <= now or (recipient is not None and overdue is not None and overdue(recipient)):
                resident.state = State.CLAIMED
                found.append(resident)
            else:
                shard.waiting.pass_over(resident, min(until, shard.latest_due()), now)
                self._passes -= 1

    def _ask(self, room: int, now: int, found: list[Resident]) -> None:
        """Of those whose domains are passed over once more, take who is overdue."""
        waiting, overdue = self._shard.waiting, self._overdue
        if overdue is None:
            return
        for _ in range(ASKED_AT_ONCE):
            if len(found) >= room or (resident := waiting.pop_aged(self._received_by)) is None:
                return
            recipient = self._load(resident, now)
            if recipient is None:
                continue
            if overdue(recipient):
                resident.due = 0
                resident.state = State.CLAIMED
                found.append(resident)
            else:
                resident.recipient, resident.raw = None, b""

    def _load(self, resident: Resident, now: int) -> Recipient | None:
        """The resident's recipient; None when it cannot be read now, and it waits for a better time."""
        shard = self._shard
        try:
            return shard.load(resident)
        except (OSError, DecodeError) as error:
            place = resident.segment.path, resident.offset
            log.error("%s: record at octet %d cannot be read: %s", *place, error)
            damaged = isinstance(error, DecodeError)
            resident.due = now + (shard.options.schedule.delays[0] if damaged else _AGAIN_MS)
            resident.state = State.WAITING
            shard.waiting.add(resident)
            return None

    def _give_back(self, found: list[Resident]) -> None:
        for resident in found:
            resident.state = State.WAITING
            self._shard.waiting.add(resident)

    def _hand_out(self, found: list[Resident]) -> Sequence[Recipient]:
        shard = self._shard
        recipients = []
        now = shard.clock.now()
        for resident in found:
            recipient = resident.recipient or self._load(resident, now)
            if recipient is None:
                continue
            if recipient.key in shard.active:
                self._put_off(resident, now)
                continue
            shard.active[recipient.key] = resident
            recipients.append(recipient)
        return recipients

    def _put_off(self, resident: Resident, now: int) -> None:
        """Only damage gives a recipient two homes: both are kept, and never in flight together, for a verdict
        must end the one that was tried."""
        name = f"{format_spid(resident.spid)}/{resident.qid}"
        log.error("recipient %s is recorded twice; run `mqcd fsck`", name)
        resident.due = now + _AGAIN_MS
        resident.state = State.WAITING
        self._shard.waiting.add(resident)

    async def _take(self, name: str, room: int, now: int, skip: Skip, found: list[Resident]) -> bool:
        """Move records of a cluster into the journal; False when the journal takes nothing now.

        A cluster that cannot be read is set aside: it must not hold up the others.
        """
        shard = self._shard
        loop = asyncio.get_running_loop()
        want = min(room + (self._passes if skip else 0), TAKEN_AT_ONCE, shard.journal.max_residents)
        # The other half is for the heads of the entries, and a long last line.
        most = shard.journal.frame_room // 2
        try:
            taken = await loop.run_in_executor(shard.executor, shard.shelf.read, name, want, now, most)
            for find in taken.finds:
                await loop.run_in_executor(
                    shard.executor, put_aside, shard.disk, shard.queue_root, name, *find
                )
        except (DecodeError, FileNotFoundError) as error:
            log.error("cluster %s cannot be read: %s; run `mqcd fsck`", name, error)
            shard.shelf.set_aside(name)
            return True
        except OSError as error:
            log.error("cluster %s cannot be read and will be tried again: %s", name, told(error))
            shard.shelf.set_aside(name)
            shard.later(_AGAIN_MS, lambda: self._bring_back(name))
            return True
        before = shard.shelf.clusters[name]
        if not taken.lines and taken.state.cursor == before.cursor:
            # After a crash a cluster's due time may be that of records that were taken from it.
            shard.shelf.add(replace(before, due=taken.state.due))
            return True
        try:
            await self._move_in(taken, room, now, skip, found)
        except StoreUnavailable:
            return False
        return True

    def _bring_back(self, name: str) -> None:
        """Offer a cluster again that could not be read."""
        shard = self._shard
        if (state := shard.shelf.clusters.get(name)) is not None:
            shard.shelf.add(state)
            shard.notify()

    async def _move_in(self, taken: Taken, room: int, now: int, skip: Skip, found: list[Resident]) -> None:
        shard = self._shard
        entries = [Entry(Mark.TAKEN, ALIVE, 0, 0, IN_SPOOL, raw, b"") for raw, _ in taken.lines]
        parts = [pack_take(taken.head), *map(pack_entry, entries)]

        def placed(segment: Segment, ordinal: int, body: int, _sequence: int) -> None:
            before = shard.shelf.clusters[taken.state.name]
            shard.accounts.take(
                before.area, before.left - taken.state.left, before.octets - taken.state.octets
            )
            shard.shelf.advance(taken.state)
            shard.figures.quarantined += taken.bad
            at = body + len(parts[0])
            taking = 0
            for raw, glance in taken.lines:
                resident = resident_of(glance)
                resident.raw = raw
                shard.settle_in(resident, segment, ordinal, at + ENTRY_HEAD, len(raw))
                until = skip.get(resident.domain, 0)
                if resident.due > now and resident.area is Area.DEFERRED:
                    # Its place was before one that has been expedited.
                    resident.due, resident.raw = min(resident.due, latest), b""
                    shard.waiting.add(resident)
                    self._passes -= 1
                elif until > now:
                    shard.waiting.pass_over(resident, min(until, latest), now)
                    self._passes -= 1
                # Who claimed may have been cancelled meanwhile: the records have moved all the same.
                elif cancelled or taking >= room:
                    resident.due, resident.raw = min(resident.due, latest), b""
                    shard.waiting.add(resident)
                    self._passes -= 1
                else:
                    resident.state = State.CLAIMED
                    found.append(resident)
                    taking += 1
                ordinal += 1
                at += ENTRY_HEAD + len(raw)

        cancelled = False
        latest = shard.latest_due()
        durable = shard.journal.append(Kind.TAKE, parts, len(entries), shard.clock.now(), placed)
        try:
            await asyncio.shield(durable)
        except asyncio.CancelledError:
            cancelled = True
            # The turn goes on until the shelf knows of this take: the next one would read the same lines.
            await outlast(durable)
            raise
