"""Lines, chunks, back-pressure, interruption."""

from __future__ import annotations

import asyncio

import pytest

from mqcd.core.errors import ConnectFailed
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.session.deadlines import MESSAGE_MS, Deadlines, Overdue
from mqcd.submit.session.link_states import Link
from mqcd.submit.session.wire import HIGH_WATER, MAX_LINE, BadLine, Interrupted, Wire
from tests.fakes.clock import FakeClock


class Tap(asyncio.ReadTransport):
    """A transport that can be paused."""

    paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Bench:
    """A wire, its tap and its clock."""

    def __init__(self) -> None:
        self.tap = Tap()
        self.clock = FakeClock()
        self.deadlines = Deadlines(self.clock, 0)
        self.wire = Wire(asyncio.get_running_loop(), self.tap, self.deadlines)

    def is_slow(self) -> bool:
        """Whether its message takes too long."""
        now = self.clock.monotonic()
        return self.deadlines.overdue(now, Link.ANSWERING, busy=True) is Overdue.INTERRUPT


async def test_lines_come_whole_however_they_are_cut() -> None:
    wire = Bench().wire
    got = []
    for octet in b"NOOP\r\nQUIT\r\nx":
        wire.feed_data(bytes([octet]))
        while (line := wire.next_line(MAX_LINE)) is not None:
            got.append(line)
    assert got == [b"NOOP", b"QUIT"]
    assert wire.held == 1


@pytest.mark.parametrize("step", [1, 100, 5000])
async def test_a_line_that_is_too_long_is_passed_over(step: int) -> None:
    wire = Bench().wire
    data = b"x" * 3 * MAX_LINE + b"\r\nNOOP\r\n"
    got: list[bytes | str] = []
    for position in range(0, len(data), step):
        wire.feed_data(data[position : position + step])
        assert wire.held <= MAX_LINE + step
        while True:
            try:
                line = wire.next_line(MAX_LINE)
            except BadLine as error:
                got.append(str(error))
                continue
            if line is None:
                break
            got.append(line)
    assert got == ["Line too long", b"NOOP"]
    assert wire.held == 0


@pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE])
async def test_the_longest_line(length: int) -> None:
    wire = Bench().wire
    line = b"x" * (length - 2)
    wire.feed_data(line + b"\r\n")
    assert wire.next_line(MAX_LINE) == line


async def test_a_line_without_cr_is_bad_and_gone() -> None:
    wire = Bench().wire
    wire.feed_data(b"NOOP\n\nQUIT\r\n")
    for _ in range(2):
        with pytest.raises(BadLine, match="CRLF"):
            wire.next_line(MAX_LINE)
    assert wire.next_line(MAX_LINE) == b"QUIT"


async def test_back_pressure() -> None:
    bench = Bench()
    bench.wire.feed_data(b"x" * HIGH_WATER)
    paused_at_the_mark = bench.tap.paused
    assert not paused_at_the_mark
    bench.wire.feed_data(b"x")
    paused_when_full = bench.tap.paused
    assert paused_when_full
    assert len(await bench.wire.take()) == HIGH_WATER + 1
    assert bench.tap.paused is False


async def test_take_waits_and_what_is_given_back_is_read_again() -> None:
    wire = Bench().wire
    taker = asyncio.ensure_future(wire.take())
    await asyncio.sleep(0)
    wire.feed_data(b"ab")
    wire.feed_data(b"NOOP\r\n")
    assert await taker == b"abNOOP\r\n"
    wire.unread(b"NOOP\r\n")
    wire.feed_data(b"QUIT\r\n")
    assert (wire.next_line(MAX_LINE), wire.next_line(MAX_LINE), wire.held) == (b"NOOP", b"QUIT", 0)


async def test_what_was_read_as_lines_is_not_taken_again() -> None:
    wire = Bench().wire
    wire.feed_data(b"DATA\r\nrest")
    assert wire.next_line(MAX_LINE) == b"DATA"
    assert await wire.take() == b"rest"


async def test_the_end_of_file_comes_after_what_was_sent() -> None:
    wire = Bench().wire
    wire.feed_data(b"last")
    wire.feed_eof()
    assert await wire.take() == b"last"
    with pytest.raises(ConnectFailed):
        await wire.take()


async def test_a_failure_ends_reading_before_what_was_sent() -> None:
    wire = Bench().wire
    taker = asyncio.ensure_future(wire.take())
    await asyncio.sleep(0)
    wire.fail(Interrupted(Reason.TIMEOUT, Reply(code=421)))
    wire.fail(ConnectFailed("later"))
    with pytest.raises(Interrupted):
        await taker
    wire.feed_data(b"more")
    with pytest.raises(Interrupted):
        await wire.take()


async def test_the_client_owes_a_whole_line_from_its_first_octet_on() -> None:
    bench = Bench()
    bench.clock.advance(5)
    bench.deadlines.owe()
    bench.clock.advance(5)
    bench.wire.feed_data(b"NO")
    assert bench.wire.next_line(MAX_LINE) is None
    bench.deadlines.owe()
    assert bench.deadlines.owing_since == 5
    bench.wire.feed_data(b"OP\r\n")
    assert bench.wire.next_line(MAX_LINE) == b"NOOP"
    assert bench.deadlines.owing_since == 0


async def test_the_size_of_a_message_lengthens_its_time() -> None:
    bench = Bench()
    wire, clock, deadlines = bench.wire, bench.clock, bench.deadlines
    clock.advance(1)
    deadlines.begin_message()
    for _ in range(10):
        taker = asyncio.ensure_future(wire.take())
        await asyncio.sleep(0)
        clock.advance(60_000)
        wire.feed_data(b"x" * 10_000)
        await taker
    assert bench.is_slow() is False
    deadlines.owe()
    clock.advance(99_999)
    assert bench.is_slow() is False
    clock.advance(1)
    assert bench.is_slow()
    deadlines.begin_message()
    assert bench.is_slow() is False


async def test_time_is_counted_once_however_a_command_is_cut() -> None:
    bench = Bench()
    wire, clock, deadlines = bench.wire, bench.clock, bench.deadlines
    clock.advance(1)
    deadlines.begin_message()
    for octet in b"BDAT 100000000\r\n":
        waiting = asyncio.ensure_future(wire.wait())
        await asyncio.sleep(0)
        clock.advance(5_000)
        wire.feed_data(bytes([octet]))
        await waiting
        assert not bench.is_slow()
        assert wire.next_line(MAX_LINE) == (b"BDAT 100000000" if octet == 10 else None)
    deadlines.owe()
    clock.advance(MESSAGE_MS - 16 * 5_000 - 1)
    assert not bench.is_slow()
    clock.advance(1)
    assert bench.is_slow()


async def test_time_that_we_take_ourselves_makes_no_message_slow() -> None:
    bench = Bench()
    bench.deadlines.begin_message()
    bench.wire.feed_data(b"x")
    bench.clock.advance(10_000_000)
    await bench.wire.take()
    assert bench.is_slow() is False
