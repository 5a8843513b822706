"""The log: what is written, when, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from mqcd.config.settings import LogFormat, LogLevel, LogSettings
from mqcd.ops.log.lines import Fields
from mqcd.ops.log.log import AT_ONCE, FLUSH_MS, MAX_WAITING, Log
from tests.fakes.clock import FakeClock

AT = "2027-01-15T08:00:00.000Z"


class Stream(io.StringIO):
    """A stream that breaks on demand."""

    broken = False

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError
        return super().write(text)

    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(stream: Stream, clock: FakeClock) -> Log:
    return Log(clock, stream, LogSettings())


@pytest.fixture
def attached(log: Log) -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    log.attach()
    yield logging.getLogger("mqcd.test")
    root.removeHandler(log)
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def numbered(n: int) -> Fields:
    return {"n": n}


async def test_events_are_written_together_and_in_time(log: Log, stream: Stream, clock: FakeClock) -> None:
    running = asyncio.ensure_future(log.run())
    for n in range(3):
        log.event(partial(numbered, n))
    await clock.run_for(FLUSH_MS - 1)
    assert stream.lines() == []
    await clock.run_for(1)
    assert stream.lines() == ["n=0", "n=1", "n=2"]
    log.event(partial(numbered, 3))
    await clock.run_for(FLUSH_MS)
    assert stream.lines()[3:] == ["n=3"]
    log.stop()
    await running


def test_a_shard_of_several_is_in_each_line(stream: Stream, clock: FakeClock) -> None:
    log = Log(clock, stream, LogSettings(), shard=2)
    log.event(lambda: {"at": AT, "level": "info", "event": "ready"})
    log.emit(logging.LogRecord("mqcd", logging.ERROR, "", 0, "broken", None, None))
    log.flush()
    assert [line.rsplit(" ", 1)[1] for line in stream.lines()] == ["shard=2", "shard=2"]


async def test_an_idle_log_sleeps(log: Log, clock: FakeClock) -> None:
    running = asyncio.ensure_future(log.run())
    await clock.run_for(10 * FLUSH_MS)
    assert clock.sleepers == 0
    log.stop()
    await running


async def test_a_stop_writes_what_waits_and_what_comes_later(log: Log, stream: Stream) -> None:
    log.event(partial(numbered, 1))
    log.stop()
    log.event(partial(numbered, 2))
    assert stream.lines() == ["n=1", "n=2"]
    await log.run()


def test_an_event_of_the_server_is_of_level_info(log: Log, stream: Stream) -> None:
    log.say("listening", name="ops", port=1)
    log.reload(LogSettings(level=LogLevel.WARNING))
    log.say("ready")
    assert stream.lines() == [f"at={AT} level=info event=listening name=ops port=1"]


async def test_of_a_burst_the_oldest_do_not_wait(log: Log, stream: Stream) -> None:
    for n in range(MAX_WAITING):
        log.event(partial(numbered, n))
    assert stream.lines() == [f"n={n}" for n in range(AT_ONCE)]
    for n in range(MAX_WAITING, 2 * MAX_WAITING):
        log.event(partial(numbered, n))
    assert MAX_WAITING <= len(stream.lines()) <= MAX_WAITING + AT_ONCE
    log.flush()
    assert stream.lines() == [f"n={n}" for n in range(2 * MAX_WAITING)]


async def test_no_turn_of_the_loop_writes_more_than_a_hundred_lines(
    log: Log, stream: Stream, clock: FakeClock
) -> None:
    running = asyncio.ensure_future(log.run())
    await clock.run_for(0)
    for n in range(3 * AT_ONCE + 1):
        log.event(partial(numbered, n))
    written = [0]

    def look() -> None:
        if not running.done():
            written.append(len(stream.lines()))
            asyncio.get_running_loop().call_soon(look)

    look()
    await clock.run_for(FLUSH_MS)
    while len(stream.lines()) <= 3 * AT_ONCE:
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(written)) == AT_ONCE
    log.stop()
    await running


def test_messages_are_written_after_earlier_events(
    log: Log, stream: Stream, attached: logging.Logger
) -> None:
    log.event(partial(numbered, 1))
    attached.warning("disk %s is %d%% full", "sda", 99)
    assert stream.lines() == [
        "n=1",
        f'at={AT} level=warning logger=mqcd.test msg="disk sda is 99% full"',
    ]


def test_a_trace_stays_on_its_line(stream: Stream, attached: logging.Logger) -> None:
    try:
        raise KeyError("x\nlevel=info forged=1")
    except KeyError:
        attached.exception("failed")
    [line] = stream.lines()
    assert "Traceback" in line
    assert "KeyError" in line


def test_arguments_that_do_not_fit_cost_no_line(log: Log, stream: Stream) -> None:
    log.handle(logging.LogRecord("mqcd.test", logging.ERROR, __file__, 1, "%d octets", ("many",), None))
    assert stream.lines() == [f"at={AT} level=error logger=mqcd.test msg=\"%d octets ('many',)\""]


def test_the_level_is_for_our_own_messages(log: Log, stream: Stream, attached: logging.Logger) -> None:
    attached.debug("hidden")
    attached.info("shown")
    logging.getLogger("elsewhere").info("hidden")
    logging.getLogger("elsewhere").warning("shown too")
    assert [line.split("msg=")[1] for line in stream.lines()] == ["shown", '"shown too"']
    log.reload(LogSettings(level=LogLevel.DEBUG))
    attached.debug("now")
    log.reload(LogSettings(level=LogLevel.ERROR))
    attached.warning("not now")
    assert stream.lines()[2:] == [f"at={AT} level=debug logger=mqcd.test msg=now"]


def test_another_format_from_the_next_line_on(log: Log, stream: Stream, attached: logging.Logger) -> None:
    log.event(partial(numbered, 1))
    log.reload(LogSettings(format=LogFormat.JSON))
    log.event(partial(numbered, 2))
    attached.warning("x")
    assert stream.lines()[0] == "n=1"
    assert [json.loads(line) for line in stream.lines()[1:]] == [
        {"n": 2},
        {"at": AT, "level": "warning", "logger": "mqcd.test", "msg": "x"},
    ]


def test_lost_lines_are_counted_and_told(log: Log, stream: Stream) -> None:
    stream.broken = True
    for n in range(3):
        log.event(partial(numbered, n))
        log.flush()
    stream.broken = False
    log.event(partial(numbered, 3))
    log.flush()
    assert stream.lines() == [f'at={AT} level=error msg="log lines could not be written" lost=3', "n=3"]
    log.event(partial(numbered, 4))
    log.flush()
    assert stream.lines()[2:] == ["n=4"]


async def test_threads_may_log(log: Log, stream: Stream, attached: logging.Logger) -> None:
    await asyncio.gather(*(asyncio.to_thread(attached.info, "from %d", n) for n in range(20)))
    assert sorted(line.split("msg=")[1] for line in stream.lines()) == sorted(
        f'"from {n}"' for n in range(20)
    )


def test_a_message_carries_what_it_is_about(log: Log, stream: Stream, attached: logging.Logger) -> None:
    attached.warning("cut", extra={"session": "smtp-1", "spid": "00AB", "other": "unseen"})
    assert stream.lines() == [f"at={AT} level=warning logger=mqcd.test session=smtp-1 spid=00AB msg=cut"]


@pytest.mark.parametrize("form", LogFormat)
def test_the_journal_knows_the_time_itself(tmp_path: Path, clock: FakeClock, form: LogFormat) -> None:
    with (tmp_path / "log").open("w") as stream:
        status = os.fstat(stream.fileno())
        told = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        log = Log(clock, stream, LogSettings(format=form), told)
        log.event(lambda: {"at": AT, "level": "info", "event": "ready"})
        log.handle(logging.LogRecord("mqcd.test", logging.ERROR, __file__, 1, "broken", (), None))
        log.stop()
    written = (tmp_path / "log").read_text().splitlines()
    assert [line[:3] for line in written] == ["<6>", "<3>"]
    assert "2027" not in "".join(written)
    if form is LogFormat.JSON:
        assert json.loads(written[0][3:]) == {"level": "info", "event": "ready"}
    else:
        assert written[1] == "<3>level=error logger=mqcd.test msg=broken"
