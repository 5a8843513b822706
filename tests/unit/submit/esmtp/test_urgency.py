"""When a message may be sent, and how urgent it is."""

from __future__ import annotations

from typing import Any

import pytest

from mqcd.config.settings import PrioritySettings
from mqcd.core.model import Area
from mqcd.submit.esmtp.caller import PLAIN
from mqcd.submit.esmtp.parameters import MailParameters
from mqcd.submit.esmtp.refusal import DoorRefused
from mqcd.submit.esmtp.urgency import Urgency
from tests.fakes.clock import FakeClock
from tests.unit.submit.message.test_chunking import ENVELOPE, Talk, bdat
from tests.unit.submit.support import House, server

NOW = 1_800_000_000_000
HOUR = 3_600_000


def urgency(**settings: Any) -> Urgency:
    settings.setdefault("submission", True)
    return Urgency(server(**settings), lambda: NOW)


@pytest.mark.parametrize(
    ("settings", "keywords"),
    [
        ({}, ["MT-PRIORITY", "FUTURERELEASE 604800 2027-01-22T08:00:00Z"]),
        ({"hold_max": HOUR, "ext_mt_priority": False}, ["FUTURERELEASE 3600 2027-01-15T09:00:00Z"]),
        ({"ext_futurerelease": False}, ["MT-PRIORITY"]),
        ({"submission": False}, []),
        ({"submission": False, "ext_mt_priority": True}, ["MT-PRIORITY"]),
        ({"ext_mt_priority": False, "hold_max": 1000}, ["FUTURERELEASE 1 2027-01-15T08:00:01Z"]),
    ],
)
def test_what_is_offered(settings: dict[str, Any], keywords: list[str]) -> None:
    assert urgency(**settings).keywords() == keywords


@pytest.mark.parametrize(
    ("parameters", "release"),
    [
        (MailParameters(), 0),
        (MailParameters(holdfor=HOUR), NOW + HOUR),
        (MailParameters(holduntil=NOW + HOUR), NOW + HOUR),
        (MailParameters(holduntil=NOW - 1), 0),
    ],
)
def test_the_release(parameters: MailParameters, release: int) -> None:
    assert urgency(hold_max=HOUR).release(parameters) == release


@pytest.mark.parametrize(
    "parameters", [MailParameters(holdfor=HOUR + 1), MailParameters(holduntil=NOW + HOUR + 1)]
)
def test_a_release_beyond_the_limit(parameters: MailParameters) -> None:
    with pytest.raises(DoorRefused) as refused:
        urgency(hold_max=HOUR).release(parameters)
    assert refused.value.reply.code == 501


@pytest.mark.parametrize(
    ("user", "asked", "given"),
    [("", 5, 4), ("", 4, 4), ("", -9, -9), ("alice", 9, 8), ("bob", 9, 2), ("carol", 9, 4)],
)
def test_the_priority(user: str, asked: int, given: int) -> None:
    rights = (
        PrioritySettings(user=("alice", "bob"), most=2),
        PrioritySettings(user=("alice",), most=8),
    )
    assert urgency(priorities=rights).priority(user, asked) == given


async def test_a_held_and_urgent_message() -> None:
    talk = await Talk().begin(submission=True)
    await talk.say(b"MAIL FROM:<a@example.net> HOLDFOR=60 MT-PRIORITY=9\r\n")
    assert talk.transport.written == b"250 2.3.6 4 is the priority of this message\r\n"
    await talk.say(b"RCPT TO:<a@example.com>\r\n" + bdat(b"x\r\n"))
    [held] = await talk.house.queued()
    assert (held.area, held.due, held.envelope.priority) == (
        Area.DEFERRED,
        talk.house.clock.now() + 60_000,
        4,
    )


async def test_without_submission_the_parameters_are_not_known() -> None:
    talk = await Talk().begin()
    codes = await talk.say(b"MAIL FROM:<> HOLDFOR=60\r\nMAIL FROM:<> MT-PRIORITY=1\r\n" + ENVELOPE)
    assert codes == ["555", "555", "250", "250"]


def test_the_reply_to_ehlo_says_the_present_time() -> None:
    clock = FakeClock()
    house = House(server(submission=True), clock=clock)
    rules = house.door.intake.book.common
    before = rules.ehlo(PLAIN)
    clock.advance(HOUR)
    assert rules.ehlo(PLAIN) != before
