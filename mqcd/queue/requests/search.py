"""The search of one claim: takes entries out of the queues where they wait, to hand them out.

What is searched, in which order, is in `mail` and `claim`; how records of clusters become entries, in `load`.
What the search has taken so far is in `found`, and is its own until it ends:

| of an entry | belongs to |
|---|---|
| record location, area, content: what is durable | frames alone. No search changes it |
| state, and where it stands: a queue, a bucket, `active` | the search, from its CLAIM to one of the exits |
| due time: in memory alone, the record line has its own | the same |
| `recipient` and `raw`, its record | the same; read when it is needed |
| until when its domain takes no mail | delivery, at each await. `pop` asks once, before it reads the record |

The exits, each of them one function:

| exit | by | state | stands in | due time |
|---|---|---|---|---|
| handed out | `_hand_out` | claimed | `active`, for the caller to settle, park or give back | as it was |
| its domain takes no mail | `Passing.over` | passed over | the domain's bucket | that of the bucket |
| its record cannot be read | `put_off` | waiting | a queue | `retry_due` |
| its recipient is in flight: it is recorded twice | `put_off` | waiting | a queue | `retry_due` |
| the claim was cancelled, or has failed | `run` | waiting | a queue | as it was |

"As it was" is 0 for one that has left its bucket. What was put off stays claimed until the search ends, so
that it meets none twice. One that a CARRY frame is moving waits, in a queue, from the end of that frame on
(`Entries.release`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.spid import format_spid
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.ready import retry_due
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.requests.load import RETRY_MS, Loader
from mqcd.queue.requests.passing import NOTHING_EXPIRES, Expiry, Passing, Skip
from mqcd.queue.wal.entry_states import Event
from mqcd.queue.wal.segments import JournalEntry

log = logging.getLogger(__name__)


class Search:
    """The search of one claim."""

    def __init__(
        self,
        shard: Shard,
        now: int,
        skip: Skip | None = None,
        expiry: Expiry = NOTHING_EXPIRES,
        places: Places | None = None,
    ) -> None:
        """`skip`: domains that are passed over, None = none is."""
        self.shard = shard
        self.now = now
        self.places = places
        self.passing = Passing(shard, now, skip or {}, places)
        self.loader = Loader(shard, now, self.passing)
        self.expiry = expiry
        self.found: list[JournalEntry] = []
        self.failed: list[JournalEntry] = []
        """What it has put off."""

    async def run(self, search: Awaitable[None]) -> Sequence[Recipient]:
        """The recipients that `search` finds, now in flight."""
        try:
            await search
            readable = []
            for entry in tuple(self.found):
                recipient = entry.recipient or await self.read(entry)
                if isinstance(recipient, int):
                    self.found.remove(entry)
                    self.put_off(entry, recipient)
                else:
                    readable.append((entry, recipient))
        except BaseException:
            self._release(self.found)
            self.shard.notify()
            raise
        else:
            return self._hand_out(readable)
        finally:
            self._release(self.failed)

    def may_load(self, most: int) -> bool:
        """Whether another cluster may be read: what it moves must leave the journal room for verdicts."""
        return len(self.found) < most and self.passing.left > 0 and self.shard.may_claim

    async def load(self, first: Callable[[], str | None], most: int, tenants: Collection[str] = ()) -> None:
        """Claim records of clusters, of the `first` one each time, until it names none; where `first` takes
        turns between `tenants`, of each no more than its part. `most` is how long `found` may become."""
        while self.may_load(most) and (name := first()) is not None:
            # Rounded up.
            room = -((len(self.found) - most) // max(len(tenants), 1))
            if not await self.loader.load(name, room, self.found):
                break

    async def pop(self, pop: Callable[[], JournalEntry | None], most: int) -> None:
        """Claim entries in the order of `pop`; those of suspended domains only if they are overdue."""
        passing, expiry, found = self.passing, self.expiry, self.found
        while len(found) < most and passing.left > 0 and (entry := pop()) is not None:
            until = passing.suspended_until(entry)
            if until and not expiry.may_meet(entry):
                passing.over(entry, until)
                continue
            # Before it is read: nothing else may take it meanwhile. Nothing is added to `found` meanwhile, as
            # that is this search's own: so `found.pop()` removes this entry.
            self.claim(entry)
            recipient = entry.recipient or await self.read(entry)
            if isinstance(recipient, int):
                found.pop()
                self.put_off(entry, recipient)
            elif until and not expiry.overdue(recipient):
                found.pop()
                entry.on(Event.RELEASE)
                passing.over(entry, until)

    def claim(self, entry: JournalEntry) -> None:
        """An entry is this search's from now on."""
        entry.on(Event.CLAIM)
        self.found.append(entry)

    async def take(
        self, first: Callable[[], str | None], pop: Callable[[], JournalEntry | None], most: int
    ) -> None:
        """Claim from clusters, which have the older mail, and then from the journal."""
        await self.load(first, most)
        await self.pop(pop, most)

    async def take_due(self, area: Area, pop: Callable[[int], JournalEntry | None], most: int) -> None:
        """Claim what is due in an area."""
        offers = self.shard.cluster_index.offers
        await self.take(lambda: offers.first_due(self.now, area), lambda: pop(self.now), most)

    async def read(self, entry: JournalEntry) -> Recipient | int:
        """The entry's recipient; if it cannot be read now, how long to put it off, ms.

        A damaged record is put off, and not quarantined here: reading it again may help, no frame ends a
        recipient without a verdict, and the evacuation of its segment quarantines it (`helper.jobs`).
        """
        try:
            return await self.shard.recipient(entry)
        except (OSError, DecodeError) as error:
            log.error("%s: record at octet %d cannot be read: %s", entry.segment.path, entry.offset, error)
            return self.shard.options.schedule.delays[0] if isinstance(error, DecodeError) else RETRY_MS

    def put_off(self, entry: JournalEntry, ms: int) -> None:
        """A claimed entry cannot be handed out for so long."""
        # Not from `self.now` on: a claim without regard to due times has none.
        entry.due = retry_due(entry.area, entry.due, self.shard.clock.now(), ms)
        self.failed.append(entry)

    def _release(self, given_up: Iterable[JournalEntry]) -> None:
        for entry in given_up:
            self.shard.entries.release(entry)

    def _hand_out(self, found: Sequence[tuple[JournalEntry, Recipient]]) -> Sequence[Recipient]:
        active = self.shard.entries.active
        recipients = []
        for entry, recipient in found:
            if recipient.key in active:
                # Only damage makes two records of a recipient. Both are kept, and never in flight together,
                # for a verdict must end the one that was tried.
                log.error(
                    "recipient %s/%d is recorded twice; run `mqcd fsck`", format_spid(entry.spid), entry.qid
                )
                self.put_off(entry, RETRY_MS)
            else:
                active[recipient.key] = entry
                recipients.append(recipient)
        return recipients
