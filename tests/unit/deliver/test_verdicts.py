"""The verdict that follows from an outcome."""

from __future__ import annotations

from typing import cast

import pytest

from mqcd.core.model import Attempt, Bounced, Deferred, Delivered, Expired, Phase
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.smtp.exchange import Outcome, Result
from mqcd.deliver.verdicts import verdict_on
from tests.unit.deliver.kit import SCHEDULE
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
