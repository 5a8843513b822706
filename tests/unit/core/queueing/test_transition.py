"""The rule that makes a record of a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import (
    Action,
    Amended,
    Area,
    Batch,
    Bounced,
    Discarded,
    Envelope,
    Expired,
    Phase,
    Recipient,
    Reported,
    Verdict,
)
from mqcd.core.queueing.transition import LastAttempt, after, ended_as, last_attempt, not_later, parked
from mqcd.core.smtp.reply import Reply
from tests.contract.mail import ATTEMPT, bounced, deferred, delivered, expired

FRESH = Recipient(
    envelope=Envelope(spid=2, sender="s@example.com", received=1000), size=9, qid=1, address="a@example.org"
)
BOUNCE = replace(FRESH, area=Area.BOUNCES)
HELD = replace(FRESH, area=Area.HELD)


@pytest.mark.parametrize(
    ("phase", "host"), [(Phase.ROUTE, ""), (Phase.CONNECT, ""), (Phase.GREETING, "mx"), (Phase.DOT, "mx")]
)
def test_words_of_our_own_are_nobodys(phase: Phase, host: str) -> None:
    attempt = replace(ATTEMPT, remote_host="mx", phase=phase, at=7)
    late = after(FRESH, replace(deferred(5000), attempt=attempt))
    failed = after(FRESH, replace(expired(), attempt=attempt))
    assert late is not None
    assert failed is not None
    assert late.remote == host
    assert last_attempt(failed) == LastAttempt(host, phase, 7, Verb.EXPIRED)


def test_words_of_our_own_name_the_host_that_they_are_about() -> None:
    failed = after(FRESH, Bounced(reply=Reply(code=552, text="too large", own=True), attempt=ATTEMPT))
    assert failed is not None
    assert (last_attempt(failed).host, failed.reply) == ("", "too large (mx.example.org)")
    late = after(FRESH, replace(deferred(0), reply=Reply(code=451, text="mx.example.org broke", own=True)))
    assert late is not None
    assert (late.remote, late.reply) == ("", "mx.example.org broke")


@pytest.mark.parametrize("code", [450, 550])
@pytest.mark.parametrize(("kind", "verb"), [(Bounced, Verb.BOUNCED), (Expired, Verb.EXPIRED)])
def test_the_end_is_that_of_the_verdict_whatever_the_reply(
    code: int, kind: type[Bounced | Expired], verb: Verb
) -> None:
    failed = after(FRESH, kind(reply=Reply(code=code, text="no"), attempt=ATTEMPT))
    assert failed is not None
    assert ended_as(failed) is verb
    assert ended_as(replace(failed, remote="mx")) is (Verb.BOUNCED if code == 550 else Verb.EXPIRED)


@pytest.mark.parametrize("area", [Area.INCOMING, Area.DEFERRED])
def test_a_deferral_changes_only_what_it_is_about(area: Area) -> None:
    before = replace(FRESH, area=area, attempts=3, unknowns=1)
    assert after(before, deferred(5000)) == replace(
        before,
        area=Area.DEFERRED,
        due=5000,
        attempts=4,
        code=450,
        status="4.2.1",
        reply="busy",
        remote="mx.example.org",
    )


@pytest.mark.parametrize("make", [bounced, expired])
def test_a_failure_forgets_the_due_time(make: Callable[[], Verdict]) -> None:
    failed = after(replace(FRESH, area=Area.DEFERRED, due=7), make())
    assert failed is not None
    assert (failed.area, failed.due, failed.attempts) == (Area.BOUNCES, 0, 1)


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (FRESH, Reported(report_spid=4)),
        (FRESH, Discarded(reason="setting")),
        (BOUNCE, delivered()),
        (BOUNCE, deferred(0)),
        (BOUNCE, bounced()),
        (BOUNCE, expired()),
        (replace(FRESH, area=Area.REMOVED), delivered()),
        (HELD, Discarded(reason="setting")),
    ],
)
def test_these_verdicts_cannot_come(record: Recipient, verdict: Verdict) -> None:
    with pytest.raises(ValueError, match=f"in area {record.area}"):
        after(record, verdict)


@pytest.mark.parametrize("action", [Action.RESCHEDULE, Action.RELEASE])
def test_a_batch_sets_no_due_time_after_the_latest(action: Action) -> None:
    before = replace(FRESH, area=Area.HELD if action is Action.RELEASE else Area.DEFERRED, attempts=1)
    order = Batch(id="b", action=action, at=9000, by="uid:1", until=9000)
    changed = after(before, not_later(Amended(batch=order), 5000))
    assert changed is not None
    assert changed.due == 5000


def test_parking_moves_the_due_time_of_what_is_to_be_attempted() -> None:
    waiting = replace(FRESH, area=Area.DEFERRED, due=77)
    assert parked(FRESH, 77) == waiting
    assert parked(FRESH, 0) == FRESH
    assert parked(waiting, 0) == replace(waiting, due=0)
    assert parked(BOUNCE, 77) == BOUNCE
