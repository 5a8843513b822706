"""MX records of an enemy: how many are looked up, and which addresses get no mail."""

from __future__ import annotations

import re
import socket
from dataclasses import replace

import pytest

from mqcd.core.events import Verb
from mqcd.core.model import Bounced, Deferred
from mqcd.core.ports import MxHost
from mqcd.core.smtp.reply import Reply
from mqcd.deliver.routing.routing import MAX_HOSTS, Destination, by_mx, site_name, unfit
from mqcd.net.dialer import SystemDialer
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, RELAYED, SCHEDULE, Kit

HOSTS = {"192.0.2.1": Peer, "127.0.0.1": Peer, "192.0.2.9": Peer}


@pytest.mark.parametrize("address", [
    "127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "0.0.0.0", "0.1.2.3", "::",
    "169.254.169.254", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",
])  # fmt: skip
def test_addresses_that_get_no_mail(address: str) -> None:
    assert unfit(address)


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "10.0.0.1", "192.168.1.1", "2001:db8::1", "64:ff9b::c000:201", "fd00::1"]
)
def test_addresses_that_may_get_mail(address: str) -> None:
    assert unfit(address) == ""


def test_hosts_beyond_the_most_preferred_are_left_out() -> None:
    found = [MxHost(preference=n % 7, host=f"mx{n:04}.example") for n in range(2000)]
    route = by_mx("example.com", found, 25, fallback_address=False)
    assert isinstance(route, Destination)
    hosts = [host for group in route.hosts for host in group]
    assert len(hosts) == MAX_HOSTS
    assert set(hosts) <= {each.host for each in found if each.preference == 0}


async def test_two_thousand_hosts_cost_few_look_ups() -> None:
    resolver = FakeResolver(mx={"example.com": [(n, f"mx{n}.example") for n in range(2000)]})
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.BOUNCED)
    assert resolver.asked.total() <= MAX_HOSTS + 2


async def reply_of(kit: Kit, verb: Verb, *recipients: str) -> Reply:
    await kit.submit(*recipients)
    await kit.heard(verb)
    (heard,) = kit.observer.of(verb)
    assert isinstance(heard.verdict, Bounced | Deferred)
    return heard.verdict.reply


@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.9"])
@pytest.mark.parametrize("recipient", ["to@example.com", "to@alone.example", "to@[{}]"])
async def test_no_mail_goes_to_this_machine(address: str, recipient: str) -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]},
        addresses={"mx.example.com": [address], "alone.example": [address]},
    )
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        kit.dialer.own = {"192.0.2.9"}
        reply = await reply_of(kit, Verb.BOUNCED, recipient.format(address))
        assert (reply.code, reply.status) == (550, "5.4.6")
        assert kit.dialer.dialled == []


async def test_good_hosts_are_used_beside_bad_ones() -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "bad.example.com"), (2, "mx.example.com")]},
        addresses={"bad.example.com": ["127.0.0.1"], "mx.example.com": ["::1", "192.0.2.1"]},
    )
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)
        assert kit.dialer.dialled == [("192.0.2.1", 25)]


async def test_mail_to_a_name_that_a_reload_has_brought_does_not_loop() -> None:
    resolver = FakeResolver(mx={"example.com": [(1, "new.example.org")]})
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        kit.deliverer.reload(BY_DNS, SCHEDULE, ("new.example.org",))
        assert (await reply_of(kit, Verb.BOUNCED, "to@example.com")).status == "5.4.6"


async def test_hosts_behind_this_machine_are_left_out() -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "us.example.com"), (2, "backup.example.com")]},
        addresses={"us.example.com": ["192.0.2.9"], "backup.example.com": ["192.0.2.1"]},
    )
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        kit.dialer.own = {"192.0.2.9"}
        assert (await reply_of(kit, Verb.BOUNCED, "to@example.com")).status == "5.4.6"
        assert kit.dialer.dialled == []


@pytest.mark.parametrize("bad_first", [True, False])
async def test_a_host_that_may_come_back_is_waited_for(bad_first: bool) -> None:
    bad, slow = (1, 2) if bad_first else (2, 1)
    resolver = FakeResolver(
        mx={"example.com": [(bad, "bad.example.com"), (slow, "slow.example.com")]},
        addresses={"bad.example.com": ["127.0.0.1"]},
        failing=["slow.example.com"],
    )
    async with Kit(BY_DNS, HOSTS, resolver) as kit:
        assert (await reply_of(kit, Verb.DEFERRED, "to@example.com")).status == "4.4.3"


async def test_a_setting_allows_local_hosts() -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]}, addresses={"mx.example.com": ["127.0.0.1"]}
    )
    async with Kit(replace(BY_DNS, local_mx=True), HOSTS, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)


async def test_a_relay_may_be_this_machine() -> None:
    async with Kit(RELAYED, HOSTS) as kit:
        kit.dialer.own = {"192.0.2.1"}
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)


def test_own_addresses_are_known() -> None:
    dialer = SystemDialer()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            own = "127.0.0.1"
        else:
            own = probe.getsockname()[0]
    assert re.fullmatch(r"[\d.]+", own)
    assert dialer.is_own(own)
    assert dialer.is_own("127.0.0.1")
    assert not dialer.is_own("192.0.2.1")
    assert not dialer.is_own("2001:db8::1")


VICTIM = [(1, "mx1.victim.example"), (1, "mx2.victim.example")]
FORGED = site_name([host for _, host in VICTIM])
"""A stranger's only host has the name of another's lane."""


def forged() -> FakeResolver:
    return FakeResolver(
        mx={"victim.example": VICTIM, "evil.example": [(1, FORGED)]},
        addresses={FORGED: ["192.0.2.66"], **{host: ["192.0.2.1"] for _, host in VICTIM}},
    )


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_host_with_a_lanes_name_gets_no_mail_of_others(at_once: bool) -> None:
    async with Kit(BY_DNS, {"192.0.2.1": Peer, "192.0.2.66": Peer}, forged()) as kit:
        if at_once:
            await kit.submit("to@evil.example", "to@victim.example")
        else:
            await kit.submit("to@evil.example")
            await kit.heard(Verb.DELIVERED)
            await kit.until(lambda: kit.deliverer.lanes()[0].idle == 1)
            await kit.submit("to@victim.example")
        await kit.heard(Verb.DELIVERED, 2)
        dialled = zip(kit.dialer.dialled, kit.dialer.peers, strict=True)
        mail = {address: [sent[1] for sent in peer.messages] for (address, _), peer in dialled}
        assert mail == {"192.0.2.66": [("to@evil.example",)], "192.0.2.1": [("to@victim.example",)]}
