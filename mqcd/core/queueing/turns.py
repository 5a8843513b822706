"""How tenants (see `Envelope.tenant`) share what a claim gives: rows of waiting mail that take turns, and
places beyond the room. Pure.

A row with a million items gets as many turns as one with a single item. With one row this is that row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
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
