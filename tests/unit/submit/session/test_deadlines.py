"""What becomes of a session whose client takes too long."""

from __future__ import annotations

import pytest

from mqcd.submit.session.deadlines import MESSAGE_MS, SESSION_MS, Deadlines, Overdue
from mqcd.submit.session.link_states import Link
from tests.fakes.clock import FakeClock


@pytest.mark.parametrize(("link", "timeout"), [(Link.UNREAD, SESSION_MS * 2), (Link.ENDED, 0)])
def test_a_client_that_reads_no_replies_is_cut_off(link: Link, timeout: int) -> None:
    deadlines = Deadlines(FakeClock(), timeout)
    deadlines.spend(MESSAGE_MS)
    assert deadlines.overdue(SESSION_MS - 1, link, busy=True) is None
    assert deadlines.overdue(SESSION_MS, link, busy=True) is Overdue.CUT
    silent = Deadlines(FakeClock(), 1000)
    silent.owe()
    assert silent.overdue(1001, link, busy=False) is Overdue.CUT


def test_the_last_reply_has_its_time_also_after_the_hour() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock, 1000)
    clock.advance(SESSION_MS)
    deadlines.owe()
    now = clock.monotonic()
    assert deadlines.overdue(now + 999, Link.ENDED, busy=False) is None
    assert deadlines.overdue(now + 1000, Link.ENDED, busy=False) is Overdue.CUT


def test_a_commit_is_not_cancelled_because_its_client_is_gone() -> None:
    deadlines = Deadlines(FakeClock(), 1000)
    deadlines.owe()
    assert deadlines.overdue(SESSION_MS, Link.GONE, busy=True) is None


def test_octets_of_a_refused_message_extend_no_session_beyond_the_hour() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock, 0)
    deadlines.begin_message()
    deadlines.content = 1000
    deadlines.refuse_message()
    deadlines.content = 10 * SESSION_MS
    deadlines.spend(MESSAGE_MS + 1000)
    assert deadlines.overdue(SESSION_MS - 1, Link.ANSWERING, busy=True) is None
    assert deadlines.overdue(SESSION_MS, Link.ANSWERING, busy=True) is Overdue.INTERRUPT
    deadlines.begin_message()
    deadlines.content = 1000
    deadlines.spend(MESSAGE_MS + 999)
    assert deadlines.overdue(SESSION_MS, Link.ANSWERING, busy=True) is None


def test_a_message_under_way_outlasts_the_session() -> None:
    deadlines = Deadlines(FakeClock(), 0)
    assert deadlines.overdue(SESSION_MS, Link.ANSWERING, busy=True) is None
    assert deadlines.overdue(SESSION_MS, Link.ANSWERING, busy=False) is Overdue.INTERRUPT
    deadlines.spend(MESSAGE_MS)
    assert deadlines.overdue(1, Link.ANSWERING, busy=True) is Overdue.INTERRUPT
    assert deadlines.overdue(1, Link.ANSWERING, busy=False) is None
