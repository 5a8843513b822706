"""The time limits of a connection."""

from __future__ import annotations

import pytest

from mqcd.config.settings import ClientSettings
from mqcd.core.model import Phase
from mqcd.deliver.connection.timers import PATIENCE, PER_TIMEOUT, WHOLE, Limits

MINUTE = 60_000
NOW = 1_000_000


def limits(*, mindatarate: int = 0) -> Limits:
    return Limits(ClientSettings(timeout=MINUTE, mindatarate=mindatarate))


@pytest.mark.parametrize("phase", list(PATIENCE))
def test_each_reply_has_the_patience_of_its_phase(phase: Phase) -> None:
    assert limits().reply(phase, NOW) == NOW + PATIENCE[phase] * MINUTE


def test_the_handshake_ends_however_often_it_is_answered() -> None:
    given = limits()
    now = NOW
    deadline = given.opening(now)
    for _ in range(20):
        now = deadline - 1
        deadline = given.reply(Phase.EHLO, now)
    assert deadline == NOW + WHOLE * MINUTE
    assert given.reason(deadline) == "not done within 900 s"


def test_a_transaction_gets_time_for_its_recipients_and_content() -> None:
    given = limits(mindatarate=8000)
    given.transaction(2 * PER_TIMEOUT, 30_000, NOW)
    whole = NOW + (WHOLE + 2) * MINUTE + 30_000
    assert given.reply(Phase.MAIL, whole - 1) == whole
    assert given.chunk(30_000, NOW) == NOW + 3 * MINUTE + 30_000


def test_the_replies_to_the_dot_have_a_limit_of_their_own() -> None:
    given = limits()
    given.transaction(PER_TIMEOUT, 100, NOW)
    late = NOW + 10 * WHOLE * MINUTE
    assert given.end_of_content(100, late) == late + PATIENCE[Phase.DOT] * MINUTE
    assert given.reply(Phase.DOT, late + 5 * MINUTE) == late + (PATIENCE[Phase.DOT] + 1) * MINUTE


def test_nothing_under_way_has_no_deadline() -> None:
    given = limits()
    given.transaction(1, 1, NOW)
    assert given.rest() == 0
    late = NOW + 10 * WHOLE * MINUTE
    assert given.reply(Phase.MAIL, late) == late + PATIENCE[Phase.MAIL] * MINUTE
    assert given.reason(late) == "no reply within 300 s"
    assert given.quit(late) == late + MINUTE
