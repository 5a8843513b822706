"""Entries that wait to be claimed, in the order in which they may be. Pure bookkeeping.

New mail in order of arrival, tenants in turn; the rest by due time, bounces apart. An entry that a claim has
passed over is *aside*: in its domain's bucket, until that domain's time has come. However many a bucket
holds, a claim passes them over again in one step. Each structure is divided by segment, so that an evacuation
drops all that it has moved at once. Entries are left in place when an entry is claimed elsewhere or ended,
and passed over when they come up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Set
from heapq import heapify, heappop, heappush

from mqcd.core.model import Area
from mqcd.core.queueing.spid import accepted_by
from mqcd.core.queueing.turns import ByTenant, Take
from mqcd.queue.wal.entry_states import Event, State
from mqcd.queue.wal.segments import JournalEntry

BACK_AT_ONCE = 500
BACK_EVERY_MS = 500
"""When a domain's suspension ends, this many of its recipients return together, and the next ones after this
time, or a quarter of the suspension if that is shorter. All at once would delay all other mail."""
KEPT_FROM_URGENT = 8
"""One in so many places for new mail is kept from urgent mail, so that it starves nobody."""
_NOBODY: Mapping[str, int] = {}


class Row:
    """Entries in order of arrival: by segment, and within one as they were added."""

    def __init__(self, meant: Callable[[JournalEntry], bool]) -> None:
        """`meant`: whether an entry still waits here."""
        self._meant = meant
        self.parts: dict[int, deque[JournalEntry]] = {}
        """By segment number."""

    def push(self, entry: JournalEntry) -> None:
        """Add one."""
        part = self.parts.get(entry.segment.number)
        if part is None:
            part = self.parts[entry.segment.number] = deque()
        part.append(entry)

    def _first(self) -> deque[JournalEntry] | None:
        parts = self.parts
        while parts:
            number = min(parts)
            part = parts[number]
            while part:
                if self._meant(part[0]):
                    return part
                part.popleft()
            del parts[number]
        return None

    def pop(self) -> JournalEntry | None:
        """The first one."""
        part = self._first()
        return part.popleft() if part is not None else None

    def __bool__(self) -> bool:
        return self._first() is not None


class DueHeap:
    """Entries by due time."""

    def __init__(self) -> None:
        self.parts: dict[int, list[tuple[int, int, JournalEntry]]] = {}
        """A heap for each segment, by its number."""
        self._count = 0

    def push(self, entry: JournalEntry) -> None:
        """Add one."""
        self._count += 1
        heap = self.parts.setdefault(entry.segment.number, [])
        heappush(heap, (entry.due, self._count, entry))

    def _first(self) -> list[tuple[int, int, JournalEntry]] | None:
        """The heap that has the earliest."""
        first = None
        for number in tuple(self.parts):
            heap = self.parts[number]
            while heap and not _meant(heap[0]):
                heappop(heap)
            if not heap:
                del self.parts[number]
            elif first is None or heap[0] < first[0]:
                first = heap
        return first

    def next_due(self) -> int | None:
        """The earliest due time, ms."""
        first = self._first()
        return first[0][0] if first is not None else None

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        for number, heap in self.parts.items():
            items = [item for item in heap if _meant(item)]
            for _, _, entry in items:
                entry.due = min(entry.due, latest)
            self.parts[number] = [(entry.due, count, entry) for _, count, entry in items]
            heapify(self.parts[number])

    def pop(self, now: int) -> JournalEntry | None:
        """The first that is due at `now`."""
        first = self._first()
        return heappop(first)[2] if first is not None and first[0][0] <= now else None


def _meant(item: tuple[int, int, JournalEntry]) -> bool:
    due, _, entry = item
    return entry.state is State.WAITING and entry.due == due


class _Bucket:
    """The entries of one domain that were passed over.

    They return at `until`, at most BACK_AT_ONCE together: each full group moves `until` by `every`. An entry
    that an evacuation moves to a cluster gets the due time `last`, in groups of the same size, so that it
    comes back no earlier than it would have from here.
    """

    __slots__ = ("_domain", "_returns", "every", "last", "left", "oldest", "row", "sent", "until")

    def __init__(self, domain: str, returns: list[tuple[int, str]], until: int, now: int) -> None:
        """`returns`: the heap that is to know `until`."""
        self._domain = domain
        self._returns = returns
        self.row = Row(_is_aside)
        self.oldest = 1 << 62
        """When the oldest entry that was ever here was accepted, ms."""
        self.rest(until, now)

    def rest(self, until: int, now: int) -> None:
        """They are passed over until then."""
        self._return_at(until)
        self.every = min(max((until - now) // 4, 1), BACK_EVERY_MS)
        """Time between two groups, ms."""
        self.left = BACK_AT_ONCE
        """How many of the group have not returned yet."""
        self.last = until
        """The due time of the entries that now leave for a cluster, ms; never before `until` when used."""
        self.sent = BACK_AT_ONCE
        """How many more may leave with that due time."""

    def hasten(self, until: int) -> None:
        """They return from then on, which is earlier than before, in the groups that they had."""
        self._return_at(until)
        self.last = until

    def _return_at(self, until: int) -> None:
        """Nothing else sets `until`: an item of the heap has to have it, or the domain never returns."""
        self.until = until
        """When the next group returns, ms."""
        heappush(self._returns, (until, self._domain))

    def push(self, entry: JournalEntry) -> None:
        """One more."""
        entry.on(Event.STAND_ASIDE)
        entry.recipient, entry.raw = None, b""
        self.oldest = min(self.oldest, accepted_by(entry.spid, entry.received))
        self.row.push(entry)

    def pop(self) -> JournalEntry | None:
        """The first one; after so many of them the next ones come later."""
        entry = self.row.pop()
        if entry is not None:
            entry.on(Event.RETURN)
            entry.due = 0
            self.left -= 1
            if not self.left:
                self.left = BACK_AT_ONCE
                self._return_at(self.until + self.every)
        return entry

    def goes(self) -> int:
        """When one that leaves the journal is to come back, ms: with its turn."""
        self.last = max(self.last, self.until)
        if not self.sent:
            self.sent = BACK_AT_ONCE
            self.last += self.every
        self.sent -= 1
        return self.last


class Waiting:
    """All waiting entries of a shard."""

    def __init__(self) -> None:
        self._fresh = ByTenant(_fresh_row)
        self._urgent = ByTenant(_fresh_row)
        """New mail with a priority above 0, that a client gave it since the start."""
        self._kept = 0
        """Places, in eighths, that other new mail has not had yet."""
        self._mail = DueHeap()
        self._bounces = Row(_is_bounce)
        self._late_bounces = DueHeap()
        self._removed = DueHeap()
        self._held: dict[str, Row] = {}
        """By domain, what rests for it."""
        self._held_ends = DueHeap()
        """The same, by the end of that."""
        self._buckets: dict[str, _Bucket] = {}
        """By domain, the entries that stand aside."""
        self._returns: list[tuple[int, str]] = []
        """A heap of (`until`, domain); an item whose bucket has another `until` is obsolete."""
        self._to_ask: deque[tuple[str, deque[JournalEntry]]] = deque()
        """By domain, entries whose suspension was renewed and that may be old enough to expire."""
        self._asking: set[str] = set()
        """The domains of these: one at a time has a copy of its rows, however often it is renewed."""

    def add(self, entry: JournalEntry, *, urgent: bool = False) -> None:
        """An entry may be claimed once it is due; a held one by its domain, or by a batch alone."""
        if entry.area is Area.BOUNCES:
            if entry.due:
                self._late_bounces.push(entry)
            else:
                self._bounces.push(entry)
        elif entry.area is Area.REMOVED:
            self._removed.push(entry)
        elif entry.area is Area.HELD:
            if entry.due:
                self._held_row(entry.domain).push(entry)
                self._held_ends.push(entry)
        elif entry.area is Area.INCOMING and not entry.due:
            (self._urgent if urgent else self._fresh).row(entry.tenant).push(entry)
        else:
            self._mail.push(entry)

    def _held_row(self, domain: str) -> Row:
        row = self._held.get(domain)
        if row is None:

            def meant(entry: JournalEntry) -> bool:
                return (
                    entry.state is State.WAITING
                    and entry.area is Area.HELD
                    and entry.due > 0
                    and entry.domain == domain
                )

            row = self._held[domain] = Row(meant)
        return row

    def pop_held(self, domain: str) -> JournalEntry | None:
        """The entry that rests for a domain for longest."""
        row = self._held.get(domain)
        return row.pop() if row is not None else None

    def held_domains(self) -> list[str]:
        """The domains that have some."""
        for domain in [domain for domain, row in self._held.items() if not row]:
            del self._held[domain]
        return list(self._held)

    def pop_held_end(self, now: int) -> JournalEntry | None:
        """One whose rest is over."""
        return self._held_ends.pop(now)

    def pass_over(self, entry: JournalEntry, until: int, now: int) -> None:
        """An entry that was popped stands aside: until then, or until the time of its domain."""
        bucket = self._buckets.get(entry.domain)
        if bucket is None:
            bucket = self._buckets[entry.domain] = _Bucket(entry.domain, self._returns, until, now)
        bucket.push(entry)

    def leave(self, entry: JournalEntry, latest: int) -> None:
        """A waiting entry is about to leave the journal: its due time must stand by itself, and not
        lie behind `latest`."""
        if entry.state is State.ASIDE:
            entry.due = min(self._buckets[entry.domain].goes(), latest)

    def drop(self, segment: int) -> None:
        """Forget the entries of a segment."""
        buckets = (bucket.row for bucket in self._buckets.values())
        fresh = (*self._fresh.rows, *self._urgent.rows, self._bounces)
        for row in (*fresh, *buckets, *self._held.values()):
            row.parts.pop(segment, None)
        for heap in (self._mail, self._late_bounces, self._removed, self._held_ends):
            heap.parts.pop(segment, None)

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then."""
        self._mail.bring_forward(latest)
        self._late_bounces.bring_forward(latest)
        for bucket in self._buckets.values():
            if bucket.until > latest:
                bucket.hasten(latest)

    def recall(self, domain: str, now: int) -> None:
        """The entries of a domain's bucket return from `now` on, in groups of the usual size."""
        bucket = self._buckets.get(domain)
        if bucket is not None and bucket.until > now:
            bucket.hasten(now)

    def pop_new(self) -> JournalEntry | None:
        """The oldest new mail of the tenant whose turn it is; urgent mail that has had no turn follows."""
        return _pop(self._fresh) or _pop(self._urgent)

    def pop_urgent(self) -> JournalEntry | None:
        """The oldest urgent mail of the tenant whose turn it is."""
        return _pop(self._urgent)

    def pop_extra(self, take: Take) -> JournalEntry | None:
        """The same of a tenant that `take` admits, urgent mail first."""
        return _pop(self._urgent, take) or _pop(self._fresh, take)

    @property
    def tenants(self) -> Set[str]:
        """Tenants that may have new mail here."""
        return {*self._fresh.tenants, *self._urgent.tenants}

    def urgent_share(self, room: int) -> int:
        """Of `room` places the part that urgent mail may take before older mail: seven in eight."""
        kept, self._kept = divmod(self._kept + room, KEPT_FROM_URGENT)
        return room - kept

    def pop_due(
        self, now: int, skip: Mapping[str, int] = _NOBODY, received_by: int | None = None
    ) -> JournalEntry | None:
        """The first mail to become due, if it is due at `now`; those aside from their domain's time on.

        An entry that is aside and is to be skipped again stays there; `pop_aged` gives those accepted by
        `received_by` (None = all).
        """
        domain = self._returning(now, skip, received_by)
        due = self._mail.next_due()
        if domain is None or (due is not None and due < self._buckets[domain].until):
            return self._mail.pop(now)
        return self._buckets[domain].pop()

    def pop_aged(self, received_by: int | None) -> JournalEntry | None:
        """An entry of a renewed suspension that was accepted by then; each comes once for each renewal.

        It still stands aside, unless it is claimed.
        """
        while self._to_ask:
            domain, part = self._to_ask[0]
            while part:
                entry = part.popleft()
                if _is_aside(entry) and is_old(entry, received_by):
                    return entry
            self._to_ask.popleft()
            if not self._to_ask or self._to_ask[0][0] != domain:
                self._asking.discard(domain)
        return None

    @property
    def to_ask(self) -> bool:
        """Whether `pop_aged` may return an entry."""
        return bool(self._to_ask)

    def pop_bounce(self, now: int) -> JournalEntry | None:
        """A bounce to report on."""
        return self._late_bounces.pop(now) or self._bounces.pop()

    def pop_removed(self, now: int) -> JournalEntry | None:
        """A removal whose grace is over."""
        return self._removed.pop(now)

    def next_due(self) -> int | None:
        """When the next mail is due, ms; 0 when some is already."""
        if self.has_new:
            return 0
        times = (self._mail.next_due(), self._next_return(), self._held_ends.next_due())
        return min((time for time in times if time is not None), default=None)

    @property
    def has_new(self) -> bool:
        """Whether new mail waits."""
        return bool(self._fresh or self._urgent)

    def _next_return(self) -> int | None:
        """When the first domain's time comes."""
        while self._returns:
            until, domain = self._returns[0]
            bucket = self._buckets.get(domain)
            if bucket is not None and bucket.until == until:
                if bucket.row:
                    return until
                del self._buckets[domain]
            heappop(self._returns)
        return None

    def _returning(self, now: int, skip: Mapping[str, int], received_by: int | None) -> str | None:
        """The first domain whose time has come and that is not to be skipped again."""
        while (time := self._next_return()) is not None and time <= now:
            domain = self._returns[0][1]
            until = skip.get(domain, 0)
            if until <= now:
                return domain
            heappop(self._returns)
            bucket = self._buckets[domain]
            bucket.rest(until, now)
            if domain not in self._asking and (received_by is None or bucket.oldest <= received_by):
                self._asking.add(domain)
                self._to_ask += [(domain, part.copy()) for part in bucket.row.parts.values()]
        return None


def is_old(entry: JournalEntry, received_by: int | None) -> bool:
    """Whether it was accepted by then (None = whenever it was)."""
    return received_by is None or accepted_by(entry.spid, entry.received) <= received_by


def _pop(rows: ByTenant[Row], take: Take | None = None) -> JournalEntry | None:
    row = rows.next(take)
    return row.pop() if row is not None else None


def _fresh_row() -> Row:
    return Row(_is_fresh)


def _is_fresh(entry: JournalEntry) -> bool:
    return entry.state is State.WAITING and entry.area is Area.INCOMING and not entry.due


def _is_bounce(entry: JournalEntry) -> bool:
    return entry.state is State.WAITING and entry.area is Area.BOUNCES and not entry.due


def _is_aside(entry: JournalEntry) -> bool:
    return entry.state is State.ASIDE
