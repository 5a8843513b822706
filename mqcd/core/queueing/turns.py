"""How tenants (see `Envelope.tenant`) share what a claim gives: rows of waiting mail that take turns, and
places beyond the room. Pure.

A row with a million items gets as many turns as one with a single item. With one row this is that row.
`ByTenant` has rows whose items may go at once, `DueByTenant` rows whose items are due at times: of these
only rows that have something due take turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item", covariant=True)
Take = Callable[[str], bool]
"""Whether an item of this tenant may be taken now; counts it if so."""


class Row(Protocol[Item]):
    """What waits of one tenant, in its order."""

    def pop(self) -> Item | None:
        """The first one, out of the row now."""

    def __bool__(self) -> bool:
        """Whether there is one."""


class Places(Protocol):
    """What a claim may ask about tenants, by `Envelope.tenant`."""

    @property
    def extra(self) -> int:
        """Places beyond the claim's room."""

    def take(self, tenant: str) -> bool:
        """Take one of these for new mail of a tenant; False: it may have none."""

    def passes(self, tenant: str, domain: str) -> bool:
        """Whether its mail may be claimed although its domain is to be passed over."""


AnyRow = TypeVar("AnyRow", bound=Row[object])


class ByTenant(Generic[AnyRow]):
    """The rows. Each step takes constant time, or as many steps as rows are refused."""

    __slots__ = ("_make", "_rows")

    def __init__(self, make: Callable[[], AnyRow]) -> None:
        self._make = make
        self._rows: OrderedDict[str, AnyRow] = OrderedDict()
        """In the order of their turns; some may be empty."""

    def row(self, tenant: str) -> AnyRow:
        """The row of a tenant, to add to. A new one has the last turn."""
        row = self._rows.get(tenant)
        if row is None:
            row = self._rows[tenant] = self._make()
        return row

    def next(self, take: Take | None = None) -> AnyRow | None:
        """The row whose turn it is, which is the last in turn now: an item of it must be popped.

        `take` is asked for rows that have one; None = all may go.
        """
        rows = self._rows
        for _ in range(len(rows)):
            tenant = next(iter(rows))
            row = rows[tenant]
            if not row:
                del rows[tenant]
                continue
            rows.move_to_end(tenant)
            if take is None or take(tenant):
                return row
        return None

    def __bool__(self) -> bool:
        """Whether any row has an item."""
        rows = self._rows
        while rows:
            tenant = next(iter(rows))
            if rows[tenant]:
                return True
            del rows[tenant]
        return False

    @property
    def rows(self) -> Iterable[AnyRow]:
        """All of them."""
        return self._rows.values()

    @property
    def tenants(self) -> Collection[str]:
        """Whose rows there are."""
        return self._rows.keys()


class DueRow(Protocol):
    """What waits of one tenant, by due time."""

    def next_due(self) -> int | None:
        """When its first item is due, ms; None = it has none."""


AnyDueRow = TypeVar("AnyDueRow", bound=DueRow)


class DueByTenant(Generic[AnyDueRow]):
    """The rows. A step takes as long as the heap of rows does, and a row is moved when it becomes due.

    Items may leave a row, or become due later, without a word here: that shows when the row's turn comes.
    """

    __slots__ = ("_later", "_make", "_now", "_ready", "_rows", "_times")

    def __init__(self, make: Callable[[], AnyDueRow]) -> None:
        self._make = make
        self._rows: dict[str, AnyDueRow] = {}
        self._now = 0
        self._ready: dict[str, None] = {}
        """Rows that were due at `_now`, in the order of their turns."""
        self._times: dict[str, int] = {}
        """Of each other row, when it is looked at again: not after its first item is due."""
        self._later: list[tuple[int, str]] = []
        """A heap of these; what differs from `_times` is obsolete."""

    def row(self, tenant: str, due: int) -> AnyDueRow:
        """The row of a tenant, to add to what is due then."""
        row = self._rows.get(tenant)
        if row is None:
            row = self._rows[tenant] = self._make()
        if tenant not in self._ready:
            self._wait(tenant, min(due, self._times.get(tenant, due)))
        return row

    def _wait(self, tenant: str, due: int | None) -> None:
        if due is None:
            del self._rows[tenant]
            self._times.pop(tenant, None)
        elif self._times.get(tenant) != due:
            self._times[tenant] = due
            heappush(self._later, (due, tenant))

    def ready(self, now: int) -> Collection[str]:
        """The tenants that have something due, as far as is known."""
        self._now = now
        while self._later and self._later[0][0] <= now:
            due, tenant = heappop(self._later)
            if self._times.get(tenant) == due:
                del self._times[tenant]
                self._ready[tenant] = None
        return self._ready.keys()

    def _first(self) -> tuple[str, int] | None:
        """The row whose turn it is, and when its first item is due."""
        while self._ready:
            tenant = next(iter(self._ready))
            due = self._rows[tenant].next_due()
            if due is not None and due <= self._now:
                return tenant, due
            del self._ready[tenant]
            self._wait(tenant, due)
        return None

    def next(self, now: int) -> AnyDueRow | None:
        """The row whose turn it is, which is the last in turn now: its first item is due at `now`."""
        self.ready(now)
        first = self._first()
        if first is None:
            return None
        del self._ready[first[0]]
        self._ready[first[0]] = None
        return self._rows[first[0]]

    def next_due(self) -> int | None:
        """When the first item is due; of several that are due already, that of the row whose turn it is."""
        first = self._first()
        if first is not None:
            return first[1]
        while self._later:
            due, tenant = self._later[0]
            if self._times.get(tenant) == due:
                found = self._rows[tenant].next_due()
                if found == due:
                    return due
                self._wait(tenant, found)
            if self._later[0] == (due, tenant):
                heappop(self._later)
        return None

    def changed(self) -> None:
        """Items have become due earlier: look at all rows anew."""
        self._ready.clear()
        for tenant, row in list(self._rows.items()):
            self._wait(tenant, row.next_due())

    @property
    def rows(self) -> Iterable[AnyDueRow]:
        """All of them; some may be empty."""
        return self._rows.values()
