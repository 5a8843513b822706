"""Rows of tenants: each has its turn, however long the others are."""

from __future__ import annotations

from collections import deque

from mqcd.core.queueing.turns import ByTenant


class Line:
    def __init__(self) -> None:
        self.items: deque[str] = deque()

    def pop(self) -> str:
        return self.items.popleft()

    def __bool__(self) -> bool:
        return bool(self.items)


def waiting(**counts: int) -> ByTenant[Line]:
    made = ByTenant(Line)
    for tenant, count in counts.items():
        made.row(tenant).items += [f"{tenant}{number}" for number in range(count)]
    return made


def drain(rows: ByTenant[Line], refused: str = "") -> list[str]:
    gone = []
    while (row := rows.next(lambda tenant: tenant not in refused)) is not None:
        gone.append(row.pop())
    return gone


def test_tenants_take_turns() -> None:
    assert drain(waiting(a=4, b=1, c=2)) == ["a0", "b0", "c0", "a1", "c1", "a2", "a3"]


def test_one_tenant_goes_in_order() -> None:
    assert drain(waiting(a=3)) == ["a0", "a1", "a2"]


def test_a_refused_tenant_keeps_what_it_has() -> None:
    rows = waiting(a=3, b=2)
    assert drain(rows, refused="a") == ["b0", "b1"]
    assert rows
    assert drain(rows) == ["a0", "a1", "a2"]
    assert not rows
    assert not rows.tenants
