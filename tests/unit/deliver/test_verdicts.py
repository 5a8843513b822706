"""The verdict that follows from an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from mqcd.core.model import Area, Attempt, Bounced, Deferred, Delivered, Expired, Phase
from mqcd.core.queueing.holding import HeldDomain, Holding, HoldMode
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.lanes.lane import Give, Lane, Why
from mqcd.deliver.smtp.exchange import Outcome, Result
from mqcd.deliver.verdicts import part, verdict_on
from tests.unit.deliver.kit import MINUTE, SCHEDULE
from tests.unit.deliver.lanes.test_scheduling import PLACES
from tests.unit.queue.support import recipient

REPLY = Reply(code=451, status="4.0.0", text="said")
ATTEMPT = Attempt(destination="example.org", phase=Phase.DOT)


@pytest.mark.parametrize(
    ("result", "now", "kind"),
    [
        (Result.DELIVERED, 0, Delivered),
        (Result.BOUNCED, 0, Bounced),
        (Result.DEFERRED, 0, Deferred),
        (Result.DEFERRED, 1 << 40, Expired),
    ],
)
def test_each_result_has_its_verdict(result: Result, now: int, kind: type) -> None:
    outcome = Outcome(result=result, reply=REPLY, phase=Phase.DOT)
    verdict = verdict_on(recipient(received=0), outcome, ATTEMPT, SCHEDULE, now, may_expire=True)
    assert type(verdict) is kind


def test_a_result_without_a_verdict_is_an_error() -> None:
    """It is not taken for a failure that is to be repeated."""
    outcome = Outcome(result=cast("Result", "hesitated"), reply=REPLY, phase=Phase.DOT)
    with pytest.raises(AssertionError):
        verdict_on(recipient(), outcome, ATTEMPT, SCHEDULE, 0, may_expire=True)


@pytest.mark.parametrize(
    ("now", "may_expire", "due"), [(999, True, 1000), (1000, False, 1000 + SCHEDULE.delays[0])]
)
def test_an_attempt_moves_no_age_limit_of_held_mail(now: int, may_expire: bool, due: int) -> None:
    schedule = replace(SCHEDULE, holding=Holding(domains=(HeldDomain("example.org", HoldMode.ATRN),)))
    outcome = Outcome(result=Result.DEFERRED, reply=REPLY, phase=Phase.RCPT)
    held = recipient(area=Area.HELD, due=1000, received=0)
    verdict = verdict_on(held, outcome, ATTEMPT, schedule, now, may_expire=may_expire)
    assert isinstance(verdict, Deferred)
    assert (verdict.held, verdict.due) == (True, due)


@pytest.mark.parametrize("why", [Why.RATE, Why.SHARE])
def test_mail_that_waits_for_its_turn_has_not_expired(why: Why) -> None:
    place = PLACES["a"]
    schedule = replace(SCHEDULE, warning=40 * MINUTE)
    lane = Lane(replace(place, policy=replace(place.policy, schedule=schedule)))
    late, old = recipient(received=SCHEDULE.maxtime, dsn="NOTIFY=DELAY"), recipient(received=0)
    now = SCHEDULE.maxtime + 60 * MINUTE
    parted = part([Give(recipients=[late, old], after=MINUTE, why=why, lane=lane)], now, uptime=now)
    assert [(each.recipients, each.reply.status) for _, each in parted.warned] == [([late], "4.4.5")]
    assert [(each.recipients, each.reply.status) for each in parted.judged] == [([old], "4.4.7")]
