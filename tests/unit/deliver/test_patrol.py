"""What is stuck is told once; who has waited for too long is judged; by a deliverer, with a fake clock."""

import logging
from dataclasses import replace

import pytest

from mqcd.config.settings import (
    DestinationSettings,
    HostPort,
    Rate,
    RelaySettings,
    SenderSettings,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.events import Verb
from mqcd.core.model import Area, AreaStats, Expired
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.deliver.health.watchdog import Kind, overdue
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, MINUTE, RELAYED, SCHEDULE, Kit

HOUR = 60 * MINUTE
PATIENCE = 10 * MINUTE
PATIENT = replace(RELAYED, client=replace(RELAYED.client, timeout=100 * HOUR), watchdog=PATIENCE)


async def test_an_attempt_that_does_not_end_is_stuck_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqcd.deliver")
    async with Kit(PATIENT, hosts={"192.0.2.1": lambda: Peer(replies={"DATA": None})}) as kit:
        [first, *_] = await kit.submit("a@example.com", "b@example.com")
        await kit.clock.run_for(PATIENCE)
        assert kit.deliverer.stuck() == []
        await kit.clock.run_for(3 * MINUTE)
        [stuck] = kit.deliverer.stuck()
        assert (stuck.kind, stuck.recipients, stuck.message) == (Kind.ATTEMPT, 2, f"{first.spid:016X}")
        assert PATIENCE < stuck.since_ms < PATIENCE + 4 * MINUTE
        warnings = [each.getMessage() for each in caplog.records if "stuck" in each.getMessage()]
        assert len(warnings) == 1
        assert warnings[0].startswith("stuck: attempt 192.0.2.1:2525, 2 recipients, message ")


async def test_a_lane_without_turns_is_stuck(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqcd.deliver")
    settings = replace(PATIENT, maxserverconnections=1)
    peers = iter([Peer(replies={"MAIL": None})])
    async with Kit(settings, hosts={"192.0.2.1": lambda: next(peers, Peer())}) as kit:
        await kit.submit("a@example.com")
        await kit.clock.run_for(MINUTE)
        for _ in range(3):
            await kit.submit("b@example.com")
        await kit.clock.run_for(PATIENCE + 2 * MINUTE)
        kinds = {each.kind: each for each in kit.deliverer.stuck()}
        assert set(kinds) == {Kind.ATTEMPT, Kind.LANE}
        assert kinds[Kind.LANE].recipients == 3
        assert kinds[Kind.LANE].why == "all 1 connections are slow"


async def test_a_reload_does_not_make_a_lane_without_turns_young() -> None:
    hosts = {
        "192.0.2.1": lambda: Peer(replies={"MAIL": None}),
        "192.0.2.7": lambda: Peer(replies={"MAIL": None}),
    }
    elsewhere = RelaySettings(address=HostPort(host="192.0.2.7", port=25))
    settings = replace(PATIENT, maxserverconnections=1)
    async with Kit(settings, hosts=hosts) as kit:
        for _ in range(3):
            await kit.submit("a@example.com")
        for minutes in (1, 2, 3):
            await kit.clock.run_for(4 * MINUTE)
            kit.deliverer.reload(settings, replace(SCHEDULE, delays=(minutes * MINUTE,)), ())
        await kit.clock.run_for(MINUTE)
        lanes = {each.name: each for each in kit.deliverer.stuck() if each.kind is Kind.LANE}
        assert {name: each.recipients for name, each in lanes.items()} == {"192.0.2.1:2525": 2}
        # What goes another way has not waited there yet.
        kit.deliverer.reload(replace(settings, relays=(elsewhere,)), SCHEDULE, ())
        await kit.clock.run_for(MINUTE)
        assert [each for each in kit.deliverer.stuck() if each.kind is Kind.LANE] == []


async def test_a_route_that_dns_never_gives_is_stuck() -> None:
    class Silent(FakeResolver):
        async def mx(self, domain):  # type: ignore[no-untyped-def]
            await kit.clock.sleep(100 * HOUR)

    async with Kit(replace(BY_DNS, watchdog=PATIENCE), resolver=Silent()) as kit:
        await kit.submit("a@slow.example", "b@slow.example")
        await kit.clock.run_for(PATIENCE + MINUTE)
        [stuck] = kit.deliverer.stuck()
        assert (stuck.kind, stuck.name, stuck.recipients) == (Kind.ROUTE, "slow.example", 2)


async def test_without_patience_nothing_is_ever_stuck() -> None:
    settings = replace(PATIENT, watchdog=0)
    async with Kit(settings, hosts={"192.0.2.1": lambda: Peer(replies={"DATA": None})}) as kit:
        await kit.submit("a@example.com")
        await kit.clock.run_for(HOUR)
        assert kit.deliverer.stuck() == ()


def test_an_area_with_mail_past_its_limit_is_stuck() -> None:
    areas = {area: AreaStats() for area in Area} | {Area.DEFERRED: AreaStats(recipients=5, oldest=1000)}
    assert list(overdue(areas, 1000 + HOUR, HOUR)) == []
    [stuck] = overdue(areas, 1001 + HOUR, HOUR)
    assert (stuck.kind, stuck.name, stuck.since_ms) == (Kind.QUEUE, "deferred", HOUR + 1)


async def test_expired_mail_names_its_probes_last_reply() -> None:
    short = RetrySchedule(delays=(15 * MINUTE,), maxtime=2 * HOUR, maxtime_reports=HOUR)
    async with Kit(hosts={}, schedule=short) as kit:
        for number in range(20):
            await kit.submit(f"to{number}@example.com")
        await kit.clock.run_for(2 * HOUR + 20 * MINUTE)
        await kit.heard(Verb.EXPIRED, 20)
        assert kit.deliverer.active == 0
        for heard in kit.observer.of(Verb.EXPIRED):
            assert isinstance(heard.verdict, Expired)
            assert heard.verdict.reply.status == "4.4.1"


async def test_rates_come_from_the_settings() -> None:
    slow = Rate(count=1, per=MINUTE)
    zone = ZoneSettings(name="bulk", rate=slow, matches=(ZoneMatchSettings(sender=("zone.example",)),))
    limited = {
        "destination": replace(RELAYED, destinations=(DestinationSettings(match="example.com", rate=slow),)),
        "zone": replace(RELAYED, zones=(zone,)),
        "sender": replace(RELAYED, senders=(SenderSettings(match="zone.example", rate=slow),)),
    }
    for settings in limited.values():
        async with Kit(settings) as kit:
            for _ in range(3):
                await kit.submit("to@example.com", sender="a@zone.example")
            await kit.submit("to@other.example", sender="a@other.example")
            await kit.heard(Verb.DELIVERED, 2)
            await kit.clock.run_for(50_000)
            assert kit.observer.count(Verb.DELIVERED) == 2
            await kit.clock.run_for(12_000)
            await kit.heard(Verb.DELIVERED, 3)
            await kit.clock.run_for(MINUTE)
            await kit.heard(Verb.DELIVERED, 4)


async def test_a_reload_keeps_used_tokens_and_takes_new_rates() -> None:
    slow, quick = Rate(count=1, per=HOUR), Rate(count=1, per=MINUTE)
    settings = replace(RELAYED, senders=(SenderSettings(match="example.org", rate=slow),))
    async with Kit(settings) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)
        kit.deliverer.reload(settings, SCHEDULE, ())
        await kit.submit("to@example.com", sender="a@example.org")
        await kit.clock.run_for(10 * MINUTE)
        assert kit.observer.count(Verb.DELIVERED) == 1
        again = replace(settings, senders=(SenderSettings(match="example.org", rate=quick),))
        kit.deliverer.reload(again, SCHEDULE, ())
        await kit.submit("to@example.com")
        await kit.clock.run_for(2 * MINUTE)
        await kit.heard(Verb.DELIVERED, 2)
