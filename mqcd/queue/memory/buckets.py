"""Entries that claims have passed over because their domain's destination takes no mail: a bucket a domain.

However many a bucket holds, a claim passes them over again in one step. When the time of its domain has come
they return in groups, because all at once would delay all other mail. What becomes of them:

| what happens | method | an entry | `until` of its bucket |
|---|---|---|---|
| a claim passes it over | `push` | comes | is set, if the bucket is new |
| its time has come | `returning`, `pop` | leaves: it may be claimed | moves, if that completes its group |
| then its domain is suspended again | `returning` | stays, and comes into `_aged` too | is set anew |
| a claim that lets mail expire asks | `pop_aged` | leaves `_aged`, is given if it is old | stays |
| it is claimed for its age, or by a batch | - | leaves: its row drops it | stays |
| its segment is evacuated | `next_cluster_due`, `drop` | leaves, with a due time | stays |
| nothing may be due so late any more | `bring_forward` | stays | is set, if it was later |
| all have left when the time comes | `next_return` | what `_aged` has of it goes | ends with the bucket |

A claim that lets nothing expire leaves `_aged` alone, for a later one to ask. If the domain is open before
that, its entries return, and are dropped unasked: their age is seen when they are claimed.

Invariant: the heap has an item with the `until` of each bucket; what changes that calls `_schedule`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import chain

from mqcd.core.queueing.spid import accepted_by
from mqcd.queue.memory.rows import Row
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry

BACK_AT_ONCE = 500
BACK_EVERY_MS = 500
"""When a domain's suspension ends, this many of its recipients return together, and the next ones after this
time, or a quarter of the suspension if that is shorter."""


class Pace:
    """When the entries of one bucket return: at `until`, at most BACK_AT_ONCE together; each full group moves
    `until` by `every`. Pure.

    An entry that an evacuation moves to a cluster gets a due time there instead, in groups of the same size,
    so that it comes back no earlier than it would have from here. Example: 1200 entries are passed over from
    0 s to 60 s, so groups are 500 ms apart:

    | | the first 500 | the next 500 | the last 200 |
    |---|---|---|---|
    | return (`returned`) at | 60.0 s | 60.5 s | 61.0 s |
    | or, moved at 30 s (`moved`), are due at | 60.0 s | 60.5 s | 61.0 s |
    | or, if only 500 return and 700 are moved then | 60.0 s, returned | due at 60.5 s | due at 61.0 s |
    """

    __slots__ = ("_cluster_due", "_every", "_may_move", "_may_return", "until")

    def __init__(self, until: int, now: int) -> None:
        """For entries that are passed over from `now` to `until`, ms."""
        self.until = until
        """When the next group returns, ms."""
        self._every = min(max((until - now) // 4, 1), BACK_EVERY_MS)
        self._cluster_due = until
        """The due time of entries that are moved to a cluster now, ms; never before `until` when used."""
        self._may_return = self._may_move = BACK_AT_ONCE
        """How many more may return at `until`, and be moved with `_cluster_due`."""

    def hasten(self, until: int) -> None:
        """They return from then on, which is earlier than before, in the groups that they had."""
        self.until = self._cluster_due = until

    def returned(self) -> bool:
        """One has returned. Whether that completes its group: then `until` is later."""
        self._may_return -= 1
        if self._may_return:
            return False
        self._may_return = BACK_AT_ONCE
        self.until += self._every
        return True

    def moved(self) -> int:
        """One is moved to a cluster. Its due time there, ms: when its turn would come here."""
        self._cluster_due = max(self._cluster_due, self.until)
        if not self._may_move:
            self._may_move = BACK_AT_ONCE
            self._cluster_due += self._every
        self._may_move -= 1
        return self._cluster_due


class Bucket:
    """The entries of one domain that were passed over."""

    __slots__ = ("domain", "oldest", "pace", "row")

    def __init__(self, domain: str, pace: Pace) -> None:
        self.domain = domain
        self.pace = pace
        self.row = Row(_is_passed_over)
        self.oldest = 1 << 62
        """When the oldest entry that was ever here was accepted, ms."""


class Buckets:
    """The entries that were passed over, in a bucket for each domain."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        """By domain."""
        self._returns: list[tuple[int, str]] = []
        """A heap of (`until`, domain); an item whose bucket has another `until` is obsolete."""
        self._aged: OrderedDict[str, deque[JournalEntry]] = OrderedDict()
        """By domain, entries whose suspension was renewed and that may be old enough to expire: one copy of
        its row, however often it is renewed. Only domains with a bucket."""

    def push(self, entry: JournalEntry, until: int, now: int) -> None:
        """An entry that was popped waits here until then, or until the time that its domain has already."""
        bucket = self._buckets.get(entry.domain)
        if bucket is None:
            bucket = self._buckets[entry.domain] = Bucket(entry.domain, Pace(until, now))
            self._schedule(bucket)
        entry.on(Event.PASS_OVER)
        entry.recipient, entry.raw = None, b""
        bucket.oldest = min(bucket.oldest, accepted_by(entry.spid, entry.received))
        bucket.row.push(entry)

    def pop(self, bucket: Bucket) -> JournalEntry | None:
        """The first entry of a bucket; after so many of them the next ones come later."""
        entry = bucket.row.pop()
        if entry is not None:
            entry.on(Event.RETURN)
            entry.due = 0
            if bucket.pace.returned():
                self._schedule(bucket)
        return entry

    def _schedule(self, bucket: Bucket) -> None:
        """Its `until` is another one: without an item that has it the domain would never return."""
        heappush(self._returns, (bucket.pace.until, bucket.domain))

    def next_cluster_due(self, entry: JournalEntry) -> int:
        """The due time of an entry of a bucket that is moved to a cluster now, ms."""
        return self._buckets[entry.domain].pace.moved()

    def drop(self, segment: int) -> None:
        """Forget the entries of a segment."""
        for bucket in self._buckets.values():
            bucket.row.parts.pop(segment, None)

    def bring_forward(self, latest: int) -> None:
        """What returns later than `latest` returns from then on, in groups of the usual size."""
        for bucket in self._buckets.values():
            if bucket.pace.until > latest:
                bucket.pace.hasten(latest)
                self._schedule(bucket)

    def next_return(self) -> int | None:
        """When the first domain's time comes, ms."""
        while self._returns:
            until, domain = self._returns[0]
            bucket = self._buckets.get(domain)
            if bucket is not None and bucket.pace.until == until:
                if bucket.row:
                    return until
                del self._buckets[domain]
                self._aged.pop(domain, None)
            heappop(self._returns)
        return None

    def returning(self, now: int, skip: Mapping[str, int], received_by: int | None) -> Bucket | None:
        """The first bucket whose time has come and whose domain is not to be skipped again.

        One that is gets the time in `skip`, and `pop_aged` gives those of its entries that were accepted by
        `received_by` (None = all).
        """
        while (time := self.next_return()) is not None and time <= now:
            domain = self._returns[0][1]
            bucket = self._buckets[domain]
            until = skip.get(domain, 0)
            if until <= now:
                return bucket
            heappop(self._returns)
            bucket.pace = Pace(until, now)
            self._schedule(bucket)
            if domain not in self._aged and (received_by is None or bucket.oldest <= received_by):
                self._aged[domain] = deque(chain.from_iterable(bucket.row.parts.values()))
        return None

    def pop_aged(self, received_by: int | None) -> JournalEntry | None:
        """An entry of a renewed suspension that was accepted by then; each comes once for each renewal.

        It stays in its bucket, unless it is claimed.
        """
        while self._aged:
            domain, entries = next(iter(self._aged.items()))
            while entries:
                entry = entries.popleft()
                if _is_passed_over(entry) and is_old(entry, received_by):
                    return entry
            del self._aged[domain]
        return None

    @property
    def has_aged(self) -> bool:
        """Whether `pop_aged` may return an entry."""
        return bool(self._aged)


def is_old(entry: JournalEntry, received_by: int | None) -> bool:
    """Whether it was accepted by then (None = whenever it was)."""
    return received_by is None or accepted_by(entry.spid, entry.received) <= received_by


def _is_passed_over(entry: JournalEntry) -> bool:
    return entry.state is State.PASSED_OVER
