"""Entries that wait to be claimed, in the order in which they may be. Pure bookkeeping.

| container | entries | order | popped by |
|---|---|---|---|
| `_fresh` | new mail | arrival, tenants in turn | `pop_new`; `pop_extra` after `_urgent` |
| `_urgent` | that of a priority above 0, until claimed | likewise | `pop_urgent`; `pop_new` after `_fresh` |
| `_mail` | other mail | due time, tenants in turn | `pop_due` |
| `_passed_over` | mail whose destination takes none now | the domain's time | `pop_due`, `pop_aged` |
| `_bounces` | bounces to report on | arrival | `pop_bounce` |
| `_late_bounces` | bounces to report on later | due time | `pop_bounce`, before the others |
| `_removed` | removals in their grace | its end | `pop_removed` |
| `_held` | mail held for its domain, by domain | arrival | `pop_held` |
| `_held_ends` | the same entries once more | when they are held no longer | `pop_held_end` |

Urgent mail that is given back, thawed or found by a start is in `_fresh`: entries know no priority. Held mail
without an end is in none: batches alone find it. An item that no longer agrees with its entry, which may have
been popped elsewhere, is dropped when it comes up: see `rows`. So of a held entry's two items the other one
goes when it comes up.

Where a container takes part, besides `add` and its `pop_`:

| container | `drop` | `bring_forward` | `next_due` |
|---|---|---|---|
| `_fresh`, `_urgent` | yes | no, they have no due time | due at once |
| `_mail`, `_passed_over` | yes | yes | yes |
| `_bounces` | yes | no, they have none | no: the report task has times of its own |
| `_late_bounces` | yes | yes | no, likewise |
| `_removed` | yes | no, `_KEEPS_ITS_TIME` | no, likewise |
| `_held`; `_held_ends` | yes | no, `_KEEPS_ITS_TIME` | no; yes |

What `drop` forgets to drop comes up twice after a failed evacuation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from mqcd.core.model import Area
from mqcd.core.queueing.turns import ByTenant, DueByTenant, Take
from mqcd.queue.memory.buckets import Buckets
from mqcd.queue.memory.rows import DueHeap, Row
from mqcd.queue.wal.entry_states import State
from mqcd.queue.wal.segments import JournalEntry

KEPT_FROM_URGENT = 8
"""One in so many places for new mail is kept from urgent mail, so that it starves nobody."""
_KEEPS_ITS_TIME = frozenset((Area.HELD, Area.REMOVED))
"""No due time of these is a delay of the schedule, and none is brought forward."""
_NO_DOMAIN: Mapping[str, int] = {}


def retry_due(area: Area, due: int, now: int, ms: int) -> int:
    """The due time of an entry that cannot be handed out for `ms` from `now` on: never earlier than before.
    What operators hold still has none."""
    return due if area is Area.HELD and not due else max(due, now + ms)


class Waiting:
    """All waiting entries of a shard."""

    def __init__(self) -> None:
        self._fresh = ByTenant(_fresh_row)
        self._urgent = ByTenant(_fresh_row)
        self._eighths = 0
        """Eighths of a place that are still kept for other new mail."""
        self._mail = DueByTenant(_mail_heap)
        self._passed_over = Buckets()
        self._bounces = Row(_is_bounce)
        self._late_bounces = DueHeap(Area.BOUNCES)
        self._removed = DueHeap(Area.REMOVED)
        self._held: dict[str, Row] = {}
        """By domain."""
        self._held_ends = DueHeap(Area.HELD)

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
            self._mail.row(entry.tenant, entry.due).push(entry)

    def _held_row(self, domain: str) -> Row:
        row = self._held.get(domain)
        if row is None:

            def waits_here(entry: JournalEntry) -> bool:
                return (
                    entry.state is State.WAITING
                    and entry.area is Area.HELD
                    and entry.due > 0
                    and entry.domain == domain
                )

            row = self._held[domain] = Row(waits_here)
        return row

    def pop_held(self, domain: str) -> JournalEntry | None:
        """The entry that has been held for a domain for longest."""
        row = self._held.get(domain)
        return row.pop() if row is not None else None

    def held_domains(self) -> list[str]:
        """The domains that mail is held for."""
        for domain in [domain for domain, row in self._held.items() if not row]:
            del self._held[domain]
        return list(self._held)

    def pop_held_end(self, now: int) -> JournalEntry | None:
        """One that is held no longer."""
        return self._held_ends.pop(now)

    def pass_over(self, entry: JournalEntry, until: int, now: int) -> None:
        """An entry that was popped waits until then, or until the time that its domain has already."""
        self._passed_over.push(entry, until, now)

    def leave(self, entry: JournalEntry, latest: int) -> None:
        """A waiting entry is about to be moved to a cluster: one that was passed over gets a due time of its
        own, at most `latest`. Nothing is taken out here: `drop` does that."""
        if entry.state is State.PASSED_OVER:
            entry.due = min(self._passed_over.next_cluster_due(entry), latest)

    def rejoin(self, entry: JournalEntry, latest: int) -> None:
        """An entry that was not moved after all waits again, due as if `bring_forward` had found it here."""
        if entry.area not in _KEEPS_ITS_TIME:
            entry.due = min(entry.due, latest)
        self.add(entry)

    def drop(self, segment: int) -> None:
        """Forget the entries of a segment."""
        for row in (*self._fresh.rows, *self._urgent.rows, self._bounces, *self._held.values()):
            row.parts.pop(segment, None)
        for heap in (*self._mail.rows, self._late_bounces, self._removed, self._held_ends):
            heap.parts.pop(segment, None)
        self._passed_over.drop(segment)

    def bring_forward(self, latest: int) -> None:
        """What is due later than `latest` is due then, but for `_KEEPS_ITS_TIME`."""
        for row in self._mail.rows:
            row.bring_forward(latest)
        self._mail.changed()
        self._late_bounces.bring_forward(latest)
        self._passed_over.bring_forward(latest)

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
        """Of `room` places the part that urgent mail may take before older mail: seven in eight. Each call is
        for another room: what it keeps in parts of a place is added up."""
        kept, self._eighths = divmod(self._eighths + room, KEPT_FROM_URGENT)
        return room - kept

    def pop_due(
        self, now: int, skip: Mapping[str, int] = _NO_DOMAIN, received_by: int | None = None
    ) -> JournalEntry | None:
        """Mail that is due at `now`: the first to become due of the tenant whose turn it is. What was passed
        over is due when its domain's time has come; if it is to be skipped again it stays, and `pop_aged`
        gives those of it that were accepted by `received_by` (None = all).
        """
        bucket = self._passed_over.returning(now, skip, received_by)
        if bucket is not None:
            # `next_due` judges by the time of the last `ready`.
            self._mail.ready(now)
            due = self._mail.next_due()
            if due is None or due >= bucket.pace.until:
                return self._passed_over.pop(bucket)
        row = self._mail.next(now)
        return row.pop(now) if row is not None else None

    def due_tenants(self, now: int) -> Collection[str]:
        """Tenants that have mail here that is due."""
        return self._mail.ready(now)

    def pop_aged(self, received_by: int | None) -> JournalEntry | None:
        """An entry of a renewed suspension that was accepted by then; each comes once for each renewal.

        It stays passed over, unless it is claimed.
        """
        return self._passed_over.pop_aged(received_by)

    @property
    def has_aged(self) -> bool:
        """Whether `pop_aged` may return an entry."""
        return self._passed_over.has_aged

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
        times = (self._mail.next_due(), self._passed_over.next_return(), self._held_ends.next_due())
        return min((time for time in times if time is not None), default=None)

    @property
    def has_new(self) -> bool:
        """Whether new mail waits."""
        return bool(self._fresh or self._urgent)


def _pop(rows: ByTenant[Row], take: Take | None = None) -> JournalEntry | None:
    row = rows.next(take)
    return row.pop() if row is not None else None


def _mail_heap() -> DueHeap:
    return DueHeap(Area.INCOMING, Area.DEFERRED)


def _fresh_row() -> Row:
    return Row(_is_fresh)


def _is_fresh(entry: JournalEntry) -> bool:
    return entry.state is State.WAITING and entry.area is Area.INCOMING and not entry.due


def _is_bounce(entry: JournalEntry) -> bool:
    return entry.state is State.WAITING and entry.area is Area.BOUNCES and not entry.due
