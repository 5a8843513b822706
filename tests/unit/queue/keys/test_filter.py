"""The filter of key files: it forgets no name before its time."""

from __future__ import annotations

from collections.abc import Iterable

from mqcd.queue.keys.filter import Filter
from tests.unit.queue.format.test_keys import name


def prints(numbers: Iterable[int]) -> Iterable[int]:
    return memoryview(b"".join(name(number)[12:] for number in numbers)).cast("I")


def test_nearly_all_other_names_are_new() -> None:
    filed = Filter()
    filed.add(prints(range(20_000)), 5)
    assert all(filed.perhaps(name(number)) for number in range(20_000))
    assert sum(filed.perhaps(name(number)) for number in range(20_000, 30_000)) < 100


def test_names_are_forgotten_once_all_of_their_time_are_too_old() -> None:
    filed = Filter()
    filed.add(prints([1]), 100)
    filed.expire(0)
    filed.add(prints([2]), 90)
    filed.add(prints([3]), 200)
    filed.expire(100)
    assert [filed.perhaps(name(number)) for number in (1, 2, 3)] == [True, True, True]
    filed.expire(101)
    assert [filed.perhaps(name(number)) for number in (1, 2, 3)] == [False, True, True]
    filed.expire(200)
    assert [filed.perhaps(name(number)) for number in (2, 3)] == [True, True]
    filed.add(prints([4]), 300)
    filed.expire(201)
    assert [filed.perhaps(name(number)) for number in (2, 3, 4)] == [False, False, True]
