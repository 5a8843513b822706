"""What a claim passes over: mail of suspended domains, which waits in a bucket for each (`memory.buckets`).

Old mail of such a domain may be handed out nevertheless, to be expired: `Expiry`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.turns import Places
from mqcd.queue.memory.buckets import is_old
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.segments import JournalEntry

PASSED_AT_ONCE = 500
"""Recipients that one claim may pass over, or load without claiming them."""

Skip = Mapping[str, int]
"""Suspended domains, and until when, ms."""
Overdue = Callable[[Recipient], bool]


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which recipients of suspended domains a claim hands out nevertheless."""

    overdue: Overdue
    """By the record; asked for those alone that may be."""
    received_by: int | None
    """Recipients accepted later than this are not overdue, ms; None = any may be."""

    def may_meet(self, entry: JournalEntry) -> bool:
        """Whether an entry may be overdue: its record need not be read for that."""
        return is_old(entry, self.received_by)


NOTHING_EXPIRES = Expiry(lambda _: False, 0)
"""Suspended domains are passed over whole: nobody was accepted by 0."""


class Passing:
    """Which entries one claim passes over, and how many it still may."""

    def __init__(self, shard: Shard, now: int, skip: Skip, places: Places | None = None) -> None:
        self._places = places
        self._waiting = shard.entries.waiting
        self._now = now
        self.skip = skip
        self._latest = shard.latest_due()
        self.left = PASSED_AT_ONCE
        """How many more it may pass over, or load without claiming them."""

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
            self._waiting.pass_over(entry, min(self.skip[entry.domain], self._latest), self._now)

    def wait(self, entry: JournalEntry) -> None:
        """A loaded entry that is not claimed waits for its time; its record is read again then."""
        self.left -= 1
        entry.raw = b""
        if entry.area not in (Area.HELD, Area.REMOVED):
            entry.due = min(entry.due, self._latest)
        self._waiting.add(entry)
