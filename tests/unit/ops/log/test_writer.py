"""The thread that writes: order, bounds, what is offered again, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mqcd.ops.log.writer import Writer

LONG = 30.0
"""Seconds; nothing here takes them unless it is broken."""


class Outlet:
    """Takes what it is given, once the gate is open, at most `at_once` at a time."""

    def __init__(self, at_once: int = 1000) -> None:
        self.gate = threading.Event()
        self.began = threading.Event()
        self.at_once = at_once
        self.batches: list[list[int]] = []

    def write(self, batch: Sequence[int]) -> int:
        self.began.set()
        self.gate.wait()
        done = list(batch[: self.at_once])
        self.batches.append(done)
        return len(done)

    @property
    def written(self) -> list[int]:
        return [item for batch in self.batches for item in batch]


def test_what_is_handed_over_is_written_in_order() -> None:
    outlet = Outlet()
    outlet.gate.set()
    writer = Writer("test", outlet.write, limit=100)
    for n in range(0, 50, 2):
        assert writer.put([n, n + 1]) == 2
    assert writer.drain(LONG)
    assert outlet.written == list(range(50))
    assert writer.close(LONG)


def test_a_stuck_disk_delays_none_and_the_buffer_is_bounded() -> None:
    outlet = Outlet()
    writer = Writer("test", outlet.write, limit=10)
    assert writer.put([0]) == 1
    outlet.began.wait()
    assert writer.put(list(range(1, 20))) == 9
    assert writer.put([99]) == 0
    assert writer.refused() == 11
    assert writer.refused() == 0
    assert writer.lost == 11
    assert not writer.drain(0)
    outlet.gate.set()
    assert writer.drain(LONG)
    assert outlet.batches == [[0], list(range(1, 10))]
    assert writer.put([10]) == 1
    assert writer.close(LONG)


def test_items_are_gathered_for_a_while_unless_there_is_haste() -> None:
    outlet = Outlet()
    outlet.gate.set()
    writer = Writer("test", outlet.write, limit=100, gather=LONG)
    for n in range(5):
        writer.put([n])
    assert outlet.batches == []
    assert writer.drain(LONG)
    assert outlet.batches == [[0, 1, 2, 3, 4]]
    writer.put([5])
    writer.put([6])
    assert writer.close(LONG)
    assert outlet.batches[1:] == [[5, 6]]


def test_half_a_buffer_is_haste() -> None:
    outlet = Outlet()
    writer = Writer("test", outlet.write, limit=10, gather=LONG)
    writer.put(range(5))
    assert outlet.began.wait(LONG)
    outlet.gate.set()
    assert writer.close(LONG)


def test_what_is_left_is_offered_again_before_what_came_later() -> None:
    outlet = Outlet(at_once=2)
    outlet.gate.set()
    writer = Writer("test", outlet.write, limit=100, retry=0)
    writer.put([1, 2, 3])
    writer.put([4])
    assert writer.drain(LONG)
    assert outlet.written == [1, 2, 3, 4]
    assert writer.close(LONG)


def test_an_end_offers_what_waits_once_and_no_more() -> None:
    outlet = Outlet(at_once=0)
    outlet.gate.set()
    writer = Writer("test", outlet.write, limit=100)
    writer.put([1])
    outlet.began.wait()
    assert not writer.close(LONG)
    assert outlet.written == []


def test_an_end_does_not_wait_longer_than_it_may() -> None:
    outlet = Outlet()
    writer = Writer("test", outlet.write, limit=100)
    writer.put([1])
    assert not writer.close(0)
    outlet.gate.set()
    assert writer.drain(LONG)


def test_one_that_was_never_used_ends_at_once() -> None:
    assert Writer("test", Outlet().write, limit=1).close(LONG)


def test_many_threads_may_hand_over() -> None:
    outlet = Outlet()
    outlet.gate.set()
    writer = Writer("test", outlet.write, limit=10_000)
    threads = [threading.Thread(target=lambda: [writer.put([n]) for n in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close(LONG)
    assert sorted(outlet.written) == sorted(list(range(200)) * 4)


def test_without_a_thread_to_be_had_items_wait_for_the_next() -> None:
    written: list[int] = []

    def write(items: Sequence[int]) -> int:
        written.extend(items)
        return len(items)

    writer = Writer("late", write, limit=10)
    before = threading.stack_size(1 << 40)
    try:
        assert writer.put([1]) == 1
        assert not writer.running
    finally:
        threading.stack_size(before)
    assert writer.put([2]) == 1
    assert writer.close(60)
    assert written == [1, 2]
