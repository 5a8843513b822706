"""Why a recipient waits, in words; and where mail would go, by which rule."""

from dataclasses import replace

import pytest

from mqcd.config.settings import DestinationSettings, ZoneMatchSettings, ZoneSettings
from mqcd.core.events import Verb
from mqcd.core.model import Area, Envelope, Recipient
from mqcd.core.selecting.rules import RuleAction
from mqcd.core.smtp.reply import Reply
from mqcd.deliver import explaining as room
from mqcd.deliver.explaining import waiting_for
from mqcd.deliver.lanes.lane import LaneState
from mqcd.deliver.lanes.waits import Wait
from mqcd.deliver.outlook import NO_WAIT, Waiting, outlook
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, RELAYED, Kit

NOW = 1_000_000
LANE = LaneState(
    name="mx.example",
    destination="mx.example",
    zone="",
    waiting=3,
    connections=5,
    idle=1,
    window=5,
    suspended=False,
    probe_in_ms=0,
    rate_in_ms=0,
)
DEAD = replace(LANE, suspended=True, probe_in_ms=41_001)
FRESH = Recipient(envelope=Envelope(spid=2, sender="", received=0), size=1, qid=1, address="a@d.example")
TRIED = replace(
    FRESH,
    area=Area.DEFERRED,
    due=NOW + 60_000,
    attempts=1,
    code=450,
    status="4.2.1",
    reply="busy",
    remote="mx",
)
LOOK = "mx.example suspended, next probe in 42 s"
UNDER_WAY = "mx.example suspended, probe under way"
GONE = Reply(code=550, status="5.1.2", text="no such domain")


@pytest.mark.parametrize(
    ("recipient", "in_flight", "wait", "lane", "refusal", "words"),
    [
        (FRESH, False, None, None, None, "its next attempt, which is due"),
        (TRIED, False, None, LANE, None, "its next attempt in 60 s, after 450 4.2.1 busy from mx"),
        (TRIED, True, None, LANE, None, "the end of its attempt"),
        (
            FRESH,
            True,
            Wait(place=2, rate_in_ms=0),
            LANE,
            None,
            "its turn: 2 before it, 4 of 5 connections at work",
        ),
        (
            FRESH,
            True,
            Wait(place=0, rate_in_ms=7200),
            LANE,
            None,
            "its turn: 0 before it, 4 of 5 connections at work, its rate allows it in 8 s",
        ),
        (
            replace(FRESH, area=Area.DEFERRED, due=NOW + 20_000),
            False,
            None,
            replace(LANE, booked_in_ms=60_000),
            None,
            "its turn in 26 s: rate",
        ),
        (
            FRESH,
            False,
            None,
            DEAD,
            None,
            LOOK,
        ),
        (TRIED, False, None, DEAD, None, LOOK),
        (
            replace(TRIED, due=NOW + 3_600_000),
            False,
            None,
            DEAD,
            None,
            f"its next attempt in 3600 s, and {LOOK}",
        ),
        (TRIED, False, None, replace(DEAD, probe_in_ms=0), None, UNDER_WAY),
        (
            TRIED,
            False,
            None,
            replace(DEAD, probe_in_ms=0, connections=0, waiting=0),
            None,
            "its next attempt in 60 s, after 450 4.2.1 busy from mx",
        ),
        (
            TRIED,
            False,
            None,
            None,
            GONE,
            f"its next attempt in 60 s, which would end with {GONE}",
        ),
        (replace(TRIED, area=Area.BOUNCES), False, None, LANE, None, "the report to its sender"),
    ],
)
def test_what_a_recipient_waits_for(
    recipient: Recipient,
    in_flight: bool,
    wait: Wait | None,
    lane: LaneState | None,
    refusal: Reply | None,
    words: str,
) -> None:
    waiting = Waiting(recipient=recipient, in_flight=in_flight, wait=wait or NO_WAIT)
    assert waiting_for(waiting, outlook(waiting, lane, NOW), lane, refusal, NOW) == words


async def test_where_mail_would_go_by_a_relay_and_its_zone() -> None:
    zone = ZoneSettings(
        name="bulk", maxserverconnections=3, matches=(ZoneMatchSettings(sender=("lists.example",)),)
    )
    async with Kit(replace(RELAYED, zones=(zone,))) as kit:
        explainer = kit.deliverer.explainer()
        said = await explainer.would_go("a@d.example", "d.example", "news@lists.example")
        assert said["destination"] == "192.0.2.1:2525"
        assert (said["rule"], said["zone"], said["mx"]) == ("default relay", "bulk", ["192.0.2.1"])
        limits = said["limits"]
        assert isinstance(limits, dict)
        assert limits["maxserverconnections"] == 3
        assert (await explainer.would_go("a@d.example", "d.example", "x@y.example"))["zone"] is None


async def test_where_mail_would_go_by_dns_or_not_at_all() -> None:
    resolver = FakeResolver(mx={"d.example": [(10, "mx.d.example")]})
    settings = replace(BY_DNS, destinations=(DestinationSettings(match="mx.d.example", retry_delays=(5,)),))
    async with Kit(settings, resolver=resolver) as kit:
        explainer = kit.deliverer.explainer()
        said = await explainer.would_go("a@d.example", "d.example", "")
        assert (said["destination"], said["rule"], said["mx"]) == ("mx.d.example", "MX", ["mx.d.example"])
        schedule = said["schedule"]
        assert isinstance(schedule, dict)
        assert schedule["retry_delays_ms"] == [5]
        gone = await explainer.would_go("a@no.example", "no.example", "")
        assert gone["destination"] is None
        assert str(gone["rule"]).startswith("MX: 550 5.1.2 ")


async def test_a_recipient_in_a_lane_is_told_its_place() -> None:
    stalled = {"connect": None}
    async with Kit(hosts={"192.0.2.1": lambda: Peer(replies=stalled)}) as kit:
        recipients = [(await kit.submit(f"a{number}@d.example"))[0] for number in range(8)]
        await kit.heard(Verb.CONNECTED, 5)
        said = [await kit.deliverer.explainer().why(kit.deliverer.waiting(each)) for each in recipients]
        assert [each["waiting_for"] for each in said] == [
            *["the end of its attempt"] * 5,
            *[f"its turn: {place} before it, 5 of 5 connections at work" for place in range(3)],
        ]


def test_what_mail_waits_for_is_said_of_each_action() -> None:
    assert room._BY_RULE.keys() | {RuleAction.SLOW} == set(RuleAction)
