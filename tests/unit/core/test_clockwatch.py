"""What counts as a leap of the wall clock, how a doubt ends, and what is believed meanwhile."""

from __future__ import annotations

import pytest

from mqcd.core.clockwatch import AHEAD_MS, BACK_MS, HOLD_MS, STOP_MS, Change, ClockWatch
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import EPOCH_MS, SpidSource, format_spid, spid_at, time_of
from tests.unit.queue.support import recipient

START = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


class Clocks:
    """A watch and its two clocks."""

    def __init__(self, seen: int = 0) -> None:
        self.wall, self.monotonic = START, 1000
        self.watch = ClockWatch(seen, START, 1000)

    def look(self, passed: int = 0, leap: int = 0) -> Change | None:
        self.wall += passed + leap
        self.monotonic += passed
        return self.watch.look(self.wall, self.monotonic)

    @property
    def off(self) -> int:
        return self.watch.off_by(self.wall, self.monotonic)

    @property
    def believed(self) -> int:
        return self.watch.believes(self.wall, self.monotonic)


@pytest.mark.parametrize("leap", [-BACK_MS - 1, AHEAD_MS + 1, -10 * DAY, 10_000 * DAY])
def test_a_leap_puts_the_clock_in_doubt(leap: int) -> None:
    clocks = Clocks()
    assert clocks.look(5 * HOUR) is None
    assert clocks.look(HOUR, leap) is Change.LEAPT
    assert clocks.watch.in_doubt
    assert clocks.off == leap
    assert clocks.believed == START + 6 * HOUR
    assert clocks.look(HOUR) is None
    assert clocks.believed == START + 7 * HOUR


@pytest.mark.parametrize("leap", [-BACK_MS, AHEAD_MS, 0])
def test_a_small_step_is_believed_and_counts_from_there(leap: int) -> None:
    clocks = Clocks()
    for _ in range(50):
        assert clocks.look(1, leap) is None
    assert clocks.believed == clocks.wall
    assert clocks.off == 0


def test_time_that_passes_is_no_leap() -> None:
    clocks = Clocks()
    assert clocks.look(500 * DAY) is None


@pytest.mark.parametrize("leap", [-DAY, DAY])
def test_a_clock_that_is_put_right_agrees(leap: int) -> None:
    clocks = Clocks()
    clocks.look(0, leap)
    assert clocks.look(HOUR, -leap) is Change.AGREES
    assert not clocks.watch.in_doubt
    assert clocks.look(HOUR) is None


def test_a_new_time_that_is_kept_is_believed_in_the_end() -> None:
    clocks = Clocks()
    clocks.look(0, -DAY)
    assert clocks.look(HOLD_MS - 1) is None
    assert clocks.watch.in_doubt
    assert clocks.look(1) is Change.ACCEPTED
    assert clocks.believed == clocks.wall
    assert clocks.look(HOUR, DAY) is Change.LEAPT


def test_each_further_leap_counts_anew() -> None:
    clocks = Clocks()
    clocks.look(0, -DAY)
    assert clocks.look(HOLD_MS - 1, -DAY) is Change.LEAPT
    assert clocks.look(HOLD_MS - 1) is None
    assert clocks.look(1) is Change.ACCEPTED


@pytest.mark.parametrize(
    ("gap", "doubt"), [(STOP_MS, False), (STOP_MS + 1, True), (-BACK_MS, False), (-BACK_MS - 1, True)]
)
def test_a_machine_may_have_been_off_for_long(gap: int, doubt: bool) -> None:
    clocks = Clocks(START - gap)
    clocks.look()
    assert clocks.watch.in_doubt is doubt


def test_a_doubt_at_the_start_ends_when_the_clock_is_put_right() -> None:
    clocks = Clocks(START + 1000 * DAY)
    assert clocks.look() is Change.LEAPT
    assert clocks.believed == START + 1000 * DAY
    assert clocks.look(HOUR, 1003 * DAY) is Change.AGREES


# ---------------------------------------------------------------- who goes by it

SCHEDULE = RetrySchedule(delays=(HOUR,), maxtime=3 * DAY, maxtime_reports=DAY)


def test_without_leave_to_expire_mail_is_tried_again() -> None:
    old = recipient(received=START - 100 * DAY)
    assert SCHEDULE.next_due(old, START) is None
    assert SCHEDULE.next_due(old, START, may_expire=False) == START + HOUR
    nearly = recipient(received=START - 3 * DAY + 1000)
    assert SCHEDULE.next_due(nearly, START) == START + 1000
    assert SCHEDULE.next_due(nearly, START, may_expire=False) == START + HOUR


def test_mail_from_the_future_is_as_old_as_its_spid() -> None:
    early = recipient(received=START + 1000 * DAY, spid=spid_at(START - 3 * DAY))
    assert SCHEDULE.next_due(early, START) is None
    young = recipient(received=START + 1000 * DAY, spid=spid_at(START - DAY))
    assert SCHEDULE.next_due(young, START) == START + HOUR
    imported = recipient(received=START - 4 * DAY, spid=spid_at(START))
    assert SCHEDULE.next_due(imported, START) is None


def test_a_clock_beyond_all_spids_still_gives_whole_ones() -> None:
    source = SpidSource(3, 0)
    spids = [source.next(EPOCH_MS + (1 << 42), False) for _ in range(3)]
    assert sorted(set(spids)) == spids
    assert {len(format_spid(spid)) for spid in (*spids, spid_at(1 << 43))} == {16}
    assert time_of(spids[0]) < EPOCH_MS + (1 << 41)
