"""Rows of tenants: each has its turn, however long the others are."""

from __future__ import annotations

from collections import deque

from mqcd.core.queueing.turns import ByTenant, DueByTenant


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


class Times:
    def __init__(self) -> None:
        self.times: list[int] = []

    def next_due(self) -> int | None:
        return min(self.times, default=None)

    def pop(self) -> int:
        self.times.remove(first := min(self.times))
        return first


def due(**times: list[int]) -> DueByTenant[Times]:
    made = DueByTenant(Times)
    for tenant, each in times.items():
        for time in each:
            made.row(tenant, time).times.append(time)
    return made


def drain_due(rows: DueByTenant[Times], now: int) -> list[int]:
    gone = []
    while (row := rows.next(now)) is not None:
        gone.append(row.pop())
    return gone


def test_due_rows_take_turns_and_others_wait() -> None:
    rows = due(a=[4, 1, 2, 3], b=[10, 5], c=[9])
    assert rows.next_due() == 1
    assert drain_due(rows, 7) == [1, 5, 2, 3, 4]
    assert rows.next_due() == 9
    assert drain_due(rows, 10) == [9, 10]
    assert rows.next_due() is None
    assert not list(rows.rows)


def test_a_due_row_joins_those_that_have_turns() -> None:
    rows = due(a=[1, 1, 1, 1])
    first = rows.next(5)
    assert first is not None
    first.pop()
    rows.row("b", 3).times.append(3)
    assert drain_due(rows, 5)[:2] == [1, 3]


def test_due_rows_whose_items_left_or_moved() -> None:
    rows = due(a=[1], b=[2], c=[30])
    for row, times in zip(list(rows.rows), ([], [20], [3]), strict=True):
        row.times = times
    rows.changed()
    assert rows.next_due() == 3
    assert rows.ready(5) == {"c"}
    assert drain_due(rows, 5) == [3]
    assert rows.next_due() == 20


def test_a_clock_that_goes_back_makes_nothing_due() -> None:
    rows = due(a=[10, 11])
    assert rows.ready(20) == {"a"}
    assert rows.next(9) is None
    assert rows.next_due() == 10
    assert drain_due(rows, 11) == [10, 11]
