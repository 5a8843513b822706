"""Delays, jitter and the bound of due times."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from mqcd.config.load import load
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import SpidSource
from mqcd.daemon.derived import schedule_of
from tests.unit.queue.support import recipient

MINUTE = 60_000
NOW = 1_800_000_000_000
SCHEDULE = RetrySchedule(delays=(10 * MINUTE, 60 * MINUTE), maxtime=10**9, maxtime_reports=10**9, jitter=0.25)


def test_jitter_only_lengthens_and_spreads_over_its_whole_share() -> None:
    source = SpidSource(0, 0)
    delays = [SCHEDULE.delay(recipient(spid=source.next(NOW, False)), 1) - 10 * MINUTE for _ in range(2000)]
    share = int(2.5 * MINUTE)
    assert all(0 <= each <= share for each in delays)
    quarters = Counter(min(each * 4 // share, 3) for each in delays)
    assert all(400 < quarters[quarter] < 600 for quarter in range(4))


@pytest.mark.parametrize("change", [{"spid": 2}, {"qid": 2}])
def test_jitter_comes_from_spid_qid_and_attempt_alone(change: dict[str, int]) -> None:
    one = recipient(spid=4, qid=1)
    same = recipient(spid=4, qid=1, address="other@example.com", sender="", received=1, attempts=7)
    assert SCHEDULE.delay(one, 2) == SCHEDULE.delay(same, 2)
    assert SCHEDULE.delay(one, 2) != SCHEDULE.delay(recipient(**{"spid": 4, "qid": 1, **change}), 2)
    assert SCHEDULE.delay(one, 2) != SCHEDULE.delay(one, 3)


def test_without_jitter_delays_are_what_was_set() -> None:
    plain = dataclasses.replace(SCHEDULE, jitter=0.0)
    assert [plain.delay(recipient(), attempt) for attempt in (1, 2, 3)] == [
        10 * MINUTE,
        60 * MINUTE,
        60 * MINUTE,
    ]


def test_no_due_time_is_further_ahead_than_the_bound() -> None:
    source = SpidSource(0, 0)
    for attempts in (1, 2, 9):
        each = recipient(spid=source.next(NOW, False), attempts=attempts, received=NOW)
        due = SCHEDULE.next_due(each, NOW)
        assert due is not None
        assert due <= NOW + SCHEDULE.longest
    assert SCHEDULE.longest <= 75 * MINUTE + 1


def test_the_settings_state_the_schedule(tmp_path: Path) -> None:
    file = tmp_path / "mqcd.xml"
    file.write_text(
        """<mailserver><mta>
        <queue><retry_delays>1m | 2m</retry_delays><retry_jitter>20%</retry_jitter>
        <retry_maxtime>5h</retry_maxtime><retry_maxtime_reports>3h</retry_maxtime_reports></queue>
        <deliver><destinations>
        <destination match="slow.example" retry_delays="1m | 9m"/></destinations></deliver>
        <report><delay_warning all="Y">2h</delay_warning></report></mta></mailserver>"""
    )
    settings = load(file, var=tmp_path, hostname="mx.example.org").settings
    schedule = schedule_of(settings)
    assert schedule == RetrySchedule(
        delays=(MINUTE, 2 * MINUTE),
        maxtime=300 * MINUTE,
        maxtime_reports=180 * MINUTE,
        jitter=0.2,
        elsewhere=9 * MINUTE,
        warning=120 * MINUTE,
        warn_all=True,
    )
    assert schedule.longest == int(9 * MINUTE * 1.2) + 1
    silent = dataclasses.replace(settings.report, generate_ndr=False)
    assert schedule_of(dataclasses.replace(settings, report=silent)).warning == 0


WARNING = dataclasses.replace(SCHEDULE, jitter=0.0, warning=90 * MINUTE)


@pytest.mark.parametrize(
    ("dsn", "asked", "all_"),
    [
        ("NOTIFY=DELAY", True, True),
        ("notify=success,delay ORCPT=rfc822;a@b", True, True),
        ("NOTIFY=FAILURE", False, False),
        ("NOTIFY=NEVER", False, False),
        ("ORCPT=rfc822;a@b", False, True),
        ("", False, True),
    ],
)
def test_a_delay_report_goes_to_who_asked_or_by_default(dsn: str, asked: bool, all_: bool) -> None:
    each = recipient(dsn=dsn, received=NOW, warned=False)
    wide = dataclasses.replace(WARNING, warn_all=True)
    for schedule, told in ((WARNING, asked), (wide, all_), (SCHEDULE, False)):
        assert schedule.warns(each, NOW) == (NOW + 90 * MINUTE if told else None)


def test_delay_reports_skip_null_senders_and_expired_mail() -> None:
    asks = recipient(dsn="NOTIFY=DELAY", received=NOW, warned=False)
    assert WARNING.warns(asks, NOW) is not None
    assert WARNING.warns(recipient(dsn="NOTIFY=DELAY", received=NOW, warned=True), NOW) is None
    assert WARNING.warns(recipient(dsn="NOTIFY=DELAY", received=NOW, warned=False, sender=""), NOW) is None
    assert dataclasses.replace(WARNING, maxtime=90 * MINUTE).warns(asks, NOW) is None


def test_an_attempt_comes_when_the_delay_report_is_due() -> None:
    asks = recipient(dsn="NOTIFY=DELAY", received=NOW, warned=False, attempts=1)
    failed = NOW + 60 * MINUTE
    assert WARNING.next_due(asks, failed) == NOW + 90 * MINUTE
    assert WARNING.next_due(asks, NOW + 90 * MINUTE) == NOW + 150 * MINUTE
    assert WARNING.next_due(asks, failed, may_expire=False) == NOW + 120 * MINUTE


@pytest.mark.parametrize(("unknowns", "after"), [(1, 0), (2, 10 * MINUTE), (3, 60 * MINUTE)])
def test_unknown_outcomes_back_off_within_the_age_limit(unknowns: int, after: int) -> None:
    plain = dataclasses.replace(SCHEDULE, jitter=0.0)
    each = recipient(unknowns=unknowns, received=NOW)
    assert plain.after_unknown(each, NOW) == NOW + after
    old = dataclasses.replace(plain, maxtime=5 * MINUTE)
    assert old.after_unknown(each, NOW) == NOW + min(after, 5 * MINUTE)
    # Past it, nothing brings a message forward that may be what we crash by.
    assert old.after_unknown(each, NOW + 6 * MINUTE) == NOW + 6 * MINUTE + after


def test_mail_that_was_held_is_as_old_as_its_release() -> None:
    held = recipient(received=NOW - 5 * MINUTE, release=NOW)
    assert SCHEDULE.expires(held, NOW) == NOW + SCHEDULE.maxtime
    assert SCHEDULE.expires(recipient(received=NOW, release=NOW - MINUTE), NOW) == NOW + SCHEDULE.maxtime
