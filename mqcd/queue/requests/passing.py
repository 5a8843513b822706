"""What a claim passes over: mail of suspended domains, which waits in a bucket for each (`memory.buckets`).

Old mail of such a domain may be handed out nevertheless, to be expired: `Expiry`.

What a claim goes by is delivery's, and may change at each await of the claim:

| given | changes when | asked |
|---|---|---|
| `skip`: domains, and until when | a lane or a rule suspends a domain, or no longer does | once of an entry |
| `places`: tenants that pass nevertheless | mail of theirs starts or leaves | once of an entry |
| `Expiry` | a rule bars a domain, or no longer does | once its record is read |

`suspended_until` asks for the first two, and `over` goes by what that gave: the domain may be in `skip` no
longer when the record is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mqcd.core.model import Area, Recipient
from mqcd.core.queueing.turns import Places
from mqcd.core.value import value
from mqcd.queue.memory.buckets import is_old
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.wal.segments import JournalEntry

PASSED_AT_ONCE = 500
"""Recipients that one claim may pass over, or load without claiming them."""

Skip = Mapping[str, int]
"""Suspended domains, and until when, ms; looked up when it is asked for, not copied."""
Overdue = Callable[[Recipient], bool]


@value(kw_only=False)
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
        """Hold back half of what a whole claim may pass over, for the rows that follow (`mail.ROWS`)."""
        self.left -= PASSED_AT_ONCE // 2

    def return_half(self) -> None:
        """Make the half available that `keep_half` has held back."""
        self.left += PASSED_AT_ONCE // 2

    def suspended_until(self, entry: JournalEntry) -> int:
        """Until when its domain takes no mail, ms; 0 = it takes mail now. Held mail comes when it was asked
        for, or at its end."""
        until = 0 if entry.area is Area.HELD else self.skip.get(entry.domain, 0)
        if until <= self._now:
            return 0
        passes = self._places is not None and self._places.passes(entry.tenant, entry.domain)
        return 0 if passes else until

    def over(self, entry: JournalEntry, until: int) -> None:
        """An entry of a domain that is suspended until then waits in the domain's bucket. One that was given
        up during a carry is found once more after it."""
        self.left -= 1
        if entry.resting:
            self._waiting.pass_over(entry, min(until, self._latest), self._now)

    def wait(self, entry: JournalEntry) -> None:
        """A loaded entry that is not claimed waits for its time; its record is read again then."""
        self.left -= 1
        entry.raw = b""
        if entry.area not in (Area.HELD, Area.REMOVED):
            entry.due = min(entry.due, self._latest)
        self._waiting.add(entry)
