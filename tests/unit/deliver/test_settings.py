"""Settings under mta/deliver that have no other place for their tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from mqcd.config.advice import Shaping
from mqcd.config.settings import HostPort, Rate, RelaySettings
from mqcd.core.events import Verb
from mqcd.core.ports import MxHost
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, MINUTE, RELAYED, SCHEDULE, Kit


@pytest.mark.parametrize(("setting", "room"), [(1, 0), (2, 0), (2, 1), (2, 3)])
async def test_maxconnections_holds_for_all_destinations_together(
    setting: int, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    most = min(setting, room or setting)
    relays = tuple(
        RelaySettings(
            address=HostPort(host=f"192.0.2.{number}", port=25), destdomains=(f"d{number}.example",)
        )
        for number in (1, 2)
    )
    silent = {each.address.host: lambda: Peer(replies={"MAIL": None}) for each in relays}
    settings = replace(RELAYED, relays=relays, maxconnections=setting)
    async with Kit(settings, silent, most_connections=room) as kit:
        for number in (1, 2):
            await kit.submit(f"to@d{number}.example")
        await kit.until(lambda: len(kit.dialer.dialled) == most)
        await kit.clock.run_for(1000)
        assert len(kit.dialer.dialled) == most
    assert ("LimitNOFILE" in caplog.text) is (0 < room < setting)


@pytest.mark.parametrize("port", [25, 2525])
async def test_hosts_found_by_dns_are_asked_at_smtpport(port: int) -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]}, addresses={"mx.example.com": ["192.0.2.1"]}
    )
    async with Kit(replace(BY_DNS, smtpport=port), resolver=resolver) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert kit.dialer.dialled == [("192.0.2.1", port)]


@pytest.mark.parametrize("may", [True, False])
async def test_the_domains_own_address_stands_in_where_it_may(may: bool) -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]},
        addresses={"mx.example.com": ["192.0.2.9"], "example.com": ["192.0.2.1"]},
    )
    settings = replace(BY_DNS, client=replace(BY_DNS.client, fallback_mx_a=may))
    async with Kit(settings, {"192.0.2.1": Peer, "192.0.2.9": "Connection refused"}, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED if may else Verb.DEFERRED)


@pytest.mark.parametrize(
    "told",
    [
        {"destdomains": ("example.com",)},
        {"senders": ("from@example.org",)},
        {"sendernets": (ip_network("198.51.100.0/24"),)},
    ],
)
async def test_a_relay_has_the_mail_of_its_domains_senders_and_nets(told: dict[str, Any]) -> None:
    special = RelaySettings(address=HostPort(host="192.0.2.7", port=25), **told)
    settings = replace(RELAYED, relays=(*RELAYED.relays, special))
    async with Kit(settings, {"192.0.2.1": Peer, "192.0.2.7": Peer}) as kit:
        await kit.submit("to@example.com", client="198.51.100.9")
        await kit.deliverer.drained()
        await kit.submit("to@example.net", sender="else@example.net", client="203.0.113.9")
        await kit.deliverer.drained()
        assert kit.dialer.dialled == [("192.0.2.7", 25), ("192.0.2.1", 2525)]


ELSEWHERE = replace(RELAYED, relays=(RelaySettings(address=HostPort(host="192.0.2.7", port=25)),))


async def test_what_waits_at_a_reload_goes_by_the_new_settings() -> None:
    settings = replace(RELAYED, maxserverconnections=1)
    hosts = {"192.0.2.1": lambda: Peer(replies={"MAIL": None}), "192.0.2.7": Peer}
    async with Kit(settings, hosts) as kit:
        await kit.submit("first@example.com")
        await kit.until(lambda: bool(kit.dialer.peers) and len(kit.dialer.peers[0].log) > 1)
        for number in range(3):
            await kit.submit(f"to{number}@example.com")
        await kit.until(lambda: kit.deliverer.lanes()[0].waiting == 3)
        kit.deliverer.reload(ELSEWHERE, SCHEDULE, ())
        await kit.heard(Verb.DELIVERED, 3)
        assert kit.deliverer.active == 1


async def test_mail_for_which_a_connection_opens_at_a_reload_goes_by_the_new_settings() -> None:
    async with Kit(hosts={"192.0.2.1": Peer, "192.0.2.7": Peer}) as kit:
        await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.dialer.dialled))
        kit.deliverer.reload(ELSEWHERE, SCHEDULE, ())
        await kit.heard(Verb.DELIVERED)
        assert [len(peer.messages) for peer in kit.dialer.peers] == [0, 1]
        await kit.deliverer.drained()
        assert kit.deliverer.active == 0


class SlowResolver(FakeResolver):
    """Answers a question for MX once it may."""

    def __init__(self) -> None:
        super().__init__(
            mx={"example.com": [(1, "mx.example.com")]}, addresses={"mx.example.com": ["192.0.2.1"]}
        )
        self.may = asyncio.Event()

    async def mx(self, domain: str) -> Sequence[MxHost]:
        found = await super().mx(domain)
        await self.may.wait()
        return found


async def test_mail_whose_route_is_asked_for_at_a_reload_goes_by_the_new_settings() -> None:
    resolver = SlowResolver()
    async with Kit(BY_DNS, {"192.0.2.1": Peer, "192.0.2.7": Peer}, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.until(lambda: resolver.asked["example.com"] == 1)
        kit.deliverer.reload(ELSEWHERE, SCHEDULE, ())
        resolver.may.set()
        await kit.heard(Verb.DELIVERED)
        assert kit.dialer.dialled == [("192.0.2.7", 25)]


async def held_up(kit: Kit) -> None:
    """Have a first recipient hold the one connection, and three wait behind it."""
    await kit.submit("first@example.com")
    await kit.until(lambda: bool(kit.dialer.peers) and len(kit.dialer.peers[0].log) > 1)
    for number in range(3):
        await kit.submit(f"to{number}@example.com")
    await kit.until(lambda: kit.deliverer.lanes()[0].waiting == 3)


ONE_SLOW = replace(RELAYED, maxserverconnections=1), {"192.0.2.1": lambda: Peer(replies={"MAIL": None})}
SLOW = Shaping(
    id="s-1", reason="r", since=0, until=1, match="example.com", rate=Rate(count=1, per=60 * MINUTE)
)


async def test_what_waits_goes_by_advice_that_comes() -> None:
    async with Kit(*ONE_SLOW) as kit:
        await held_up(kit)
        kit.deliverer.reload(ONE_SLOW[0], SCHEDULE, (), (SLOW,))
        [lane] = kit.deliverer.lanes()
        assert lane.rates == ["1/h"]
        assert lane.waiting < 3


async def test_a_reload_that_changes_nothing_places_nothing_anew() -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]}, addresses={"mx.example.com": ["192.0.2.1"]}
    )
    settings, hosts = replace(BY_DNS, maxserverconnections=1), ONE_SLOW[1]
    async with Kit(settings, hosts, resolver) as kit:
        await held_up(kit)
        asked = resolver.asked["example.com"]
        kit.deliverer.reload(settings, SCHEDULE, (), ())
        await kit.clock.run_for(1)
        assert resolver.asked["example.com"] == asked
        assert kit.deliverer.lanes()[0].waiting == 3
