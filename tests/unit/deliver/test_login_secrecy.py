"""To whom a login is shown: what the relay offers, against what the settings allow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from mqcd.config.settings import (
    AuthSettings,
    DeliverSettings,
    DestinationSettings,
    Mechanism,
    RemoteNetSettings,
    Secret,
    SslSettings,
    TlsPolicy,
)
from mqcd.core.errors import ConnectFailed, LocalShortage, TlsFilesUnusable
from mqcd.core.events import Verb
from mqcd.core.model import Deferred
from tests.fakes.dialer import Peer
from tests.unit.deliver.kit import RELAYED, Kit

ENDS = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED)
PASSWORD = "Correct-Horse-47"
NETWORK = RemoteNetSettings(ip=(ip_network("192.0.2.0/24"),), anonssl=False)
OFFER = ("PIPELINING", "AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL")
WITH_TLS = (*OFFER, "STARTTLS")
RELAYS: Mapping[str, Mapping[str, Any]] = {
    "good": {"extensions": WITH_TLS},
    "stripped": {"extensions": (*OFFER, "XXXXXXXA")},
    "refused": {"extensions": WITH_TLS, "replies": {"STARTTLS": "454 4.7.0 not now"}},
    "absent": {"extensions": OFFER},
    "untrusted": {"extensions": WITH_TLS, "bad_certificate": "unable to get local issuer certificate"},
    "wrong name": {"extensions": WITH_TLS, "bad_certificate": "hostname mismatch"},
    "expired": {"extensions": WITH_TLS, "bad_certificate": "certificate has expired"},
    "broken": {"extensions": WITH_TLS, "tls_works": False},
}
IN_CLEAR = ("stripped", "refused", "absent")


def expected(relay: str, verify: bool | None, cleartext: bool) -> bool:
    """Whether the login may be sent."""
    if relay == "good":
        return True
    if relay in IN_CLEAR:
        return cleartext and verify is not True
    if relay == "broken":
        return cleartext and verify is False
    return verify is False


def settings(mechanism: Mechanism | None, ssl: SslSettings, cleartext: bool = False) -> DeliverSettings:
    auth = AuthSettings(
        enabled=True, override=mechanism, cleartext=cleartext, username="user", password=Secret(PASSWORD)
    )
    [usual] = RELAYED.relays
    return replace(RELAYED, relays=(replace(usual, auth=auth, ssl=ssl),))


async def sent(told: DeliverSettings, **how: Any) -> bool:
    """Whether any login was sent. Where none was no mail was, and it waits with the reason."""
    async with Kit(told, hosts={"192.0.2.1": lambda: Peer(**how)}) as kit:
        await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.observer.of(*ENDS)))
        verdict = kit.observer.of(*ENDS)[0].verdict
    lines = [line for peer in kit.dialer.peers for line in peer.log]
    if any(line.startswith("AUTH") for line in lines):
        return True
    assert isinstance(verdict, Deferred)
    assert verdict.reply.status in ("4.7.4", "4.7.5", "4.3.5", "4.3.0")
    assert PASSWORD not in str(verdict)
    assert not [line for line in lines if line.startswith("MAIL")]
    return False


@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize("mechanism", [None, *Mechanism])
async def test_a_login_is_sent_where_settings_allow(mechanism: Mechanism | None, relay: str) -> None:
    for verify, cleartext in itertools.product((None, False, True), (False, True)):
        ssl = SslSettings(latent=True if verify else None, verify=verify)
        found = await sent(settings(mechanism, ssl, cleartext), **RELAYS[relay])
        assert found is expected(relay, verify, cleartext), (verify, cleartext)


@pytest.mark.parametrize(("verify", "shown"), [(None, False), (True, False), (False, True)])
@pytest.mark.parametrize("cleartext", [False, True])
async def test_tls_from_the_first_octet_is_checked(verify: bool | None, shown: bool, cleartext: bool) -> None:
    told = settings(None, SslSettings(latent=False, verify=verify), cleartext)
    assert await sent(told, extensions=OFFER, tls_first=True, bad_certificate="expired") is shown


@pytest.mark.parametrize(
    "lax",
    [
        {"client": replace(RELAYED.client, anonssl=False)},
        {"destinations": (DestinationSettings(match="*", tls=TlsPolicy.NONE),)},
        {"destinations": (DestinationSettings(match="*", tls=TlsPolicy.ENCRYPT),)},
        {
            "client": replace(
                RELAYED.client,
                remotenets=(NETWORK,),
            )
        },
    ],
)
async def test_no_other_setting_shows_a_login(lax: dict[str, Any]) -> None:
    told = replace(settings(None, SslSettings()), **lax)
    for relay in RELAYS:
        assert await sent(told, **RELAYS[relay]) is (relay == "good")


@pytest.mark.parametrize("error", [TlsFilesUnusable("cannot load"), LocalShortage("no descriptor")])
async def test_our_own_fault_with_tls_sends_nothing_in_clear(error: ConnectFailed) -> None:
    async with Kit(hosts={"192.0.2.1": lambda: Peer(extensions=("STARTTLS",), own_files=error)}) as kit:
        await kit.submit("to@example.com")
        await kit.until(lambda: bool(kit.dialer.peers) and not kit.dialer.peers[0].open)
        # For what must not follow.
        for _ in range(50):
            await asyncio.sleep(0)
    assert not [line for peer in kit.dialer.peers for line in peer.log if line.startswith("MAIL")]
    assert len(kit.dialer.dialled) == 1
