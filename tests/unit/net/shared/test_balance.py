"""Connections pass to the process that has fewer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence

import pytest

from mqcd.net.shared.balance import OUT, Balance, Mailboxes


@pytest.fixture
def boxes() -> Iterator[Mailboxes]:
    made = Mailboxes.make(3)
    yield made
    made.close()


def running(boxes: Mailboxes, *connections: int) -> list[Balance]:
    """A process for each; none listens."""
    made = [Balance(boxes, process, lambda: None) for process in range(len(connections))]
    for balance, number in zip(made, connections, strict=True):
        balance.count(number)
    return made


def connection() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def test_nothing_passes_to_a_process_that_does_not_run(boxes: Mailboxes) -> None:
    [first] = running(boxes, 40)
    ours, theirs = connection()
    assert not first.passes(0, ours, 40)
    ours.close()
    theirs.close()


@pytest.mark.parametrize(("mine", "other", "gone"), [(7, 4, False), (8, 4, True), (4, 4, False)])
def test_four_more_than_another_pass(boxes: Mailboxes, mine: int, other: int, gone: bool) -> None:
    first, *_ = running(boxes, mine, other, other)
    ours, theirs = connection()
    assert first.passes(0, ours, mine) is gone
    ours.close()
    theirs.close()


async def test_a_passed_connection_arrives_whole(boxes: Mailboxes) -> None:
    first, second, _ = running(boxes, 9, 1, 2)
    arrived: asyncio.Future[tuple[int, socket.socket]] = asyncio.get_running_loop().create_future()
    second.listen(lambda listener, each: arrived.set_result((listener, each)))
    ours, theirs = connection()
    assert first.passes(4, ours, 9)
    listener, each = await asyncio.wait_for(arrived, 60)
    assert listener == 4
    each.send(b"220 here")
    assert theirs.recv(100) == b"220 here"
    second.close()
    each.close()
    theirs.close()


def test_a_process_whose_queue_takes_no_mail_passes_all(boxes: Mailboxes) -> None:
    _, second, third = running(boxes, 0, 0, 0)
    full = Balance(boxes, 0, lambda: "the disk is full")
    ours, theirs = connection()
    assert full.passes(0, ours, 0)
    theirs.close()
    # Nobody passes anything to it.
    ours, theirs = connection()
    second.count(1)
    assert not third.passes(0, ours, 1)
    ours.close()
    theirs.close()


def test_twenty_are_spread_whoever_accepts_them(boxes: Mailboxes) -> None:
    held = [0, 0, 0]
    processes = running(boxes, *held)
    ends = []
    for _ in range(20):
        ours, theirs = connection()
        ends += [ours, theirs]
        if processes[0].passes(0, ours, held[0]):
            numbers = memoryview(boxes.page).cast("I")
            for process in (1, 2):
                held[process] = numbers[process]
            numbers.release()
        else:
            held[0] += 1
            processes[0].count(held[0])
    for end in ends:
        end.close()
    assert sum(held) == 20
    assert max(held) - min(held) <= 4


def test_a_process_that_ends_is_out(boxes: Mailboxes) -> None:
    running(boxes, 1, 1, 1)
    boxes.set_out(1)
    numbers = memoryview(boxes.page).cast("I")
    assert numbers[1] == OUT
    numbers.release()


async def test_a_process_that_has_closed_gets_nothing(boxes: Mailboxes) -> None:
    first, second, _ = running(boxes, 40, 1, 40)
    second.listen(lambda listener, each: each.close())
    second.close()
    second.count(1)
    ours, theirs = connection()
    assert not first.passes(0, ours, 40)
    ours.close()
    theirs.close()


def test_mail_is_taken_elsewhere_while_another_is_in_service(boxes: Mailboxes) -> None:
    _, second = running(boxes, 0, 0)
    why = ["the disk is full"]
    full = Balance(boxes, 0, lambda: why[0])
    full.count(3)
    assert full.elsewhere()
    boxes.set_out(1)
    assert not full.elsewhere()
    second.count(1)
    why[0] = ""
    full.count(3)
    assert not full.elsewhere()


async def test_ends_that_are_lent_arrive_with_their_terms(boxes: Mailboxes) -> None:
    first, second, _ = running(boxes, 1, 1, 1)
    arrived: asyncio.Future[tuple[bytes, Sequence[socket.socket]]] = (
        asyncio.get_running_loop().create_future()
    )
    second.listen(lambda *_: None, lambda terms, ends: arrived.set_result((terms, ends)))
    pairs = [connection(), connection()]
    assert first.lend(1, b"terms", [ours for ours, _ in pairs])
    terms, ends = await asyncio.wait_for(arrived, 60)
    assert terms == b"terms"
    for each, (ours, theirs) in zip(ends, pairs, strict=True):
        each.send(b"x")
        assert theirs.recv(1) == b"x"
        for end in (each, ours, theirs):
            end.close()
    second.close()


async def test_ends_that_do_not_all_arrive_are_closed(boxes: Mailboxes) -> None:
    first, second, _ = running(boxes, 1, 1, 1)
    borrowed: list[bytes] = []
    second.listen(lambda *_: None, lambda terms, _: borrowed.append(terms))
    ours, theirs = connection()
    # As without descriptors to be had: the kernel then passes those that it can.
    assert first.lend(1, b"terms", [ours])
    ours.close()
    theirs.setblocking(False)
    assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
    assert borrowed == []
    theirs.close()
    second.close()
