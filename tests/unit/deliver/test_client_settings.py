"""What each setting of the client, and of a relay, does to what a server hears."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
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
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.events import Verb
from mqcd.core.model import Phase
from mqcd.core.ports import TlsTerms
from tests.fakes.clock import FakeClock
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, MINUTE, RELAYED, SCHEDULE, Kit

CERTIFICATE, KEY, TRUST = pathlib.Path("/c.pem"), pathlib.Path("/k.pem"), pathlib.Path("/t.pem")


def client(**changes: Any) -> DeliverSettings:
    """Settings with other options."""
    return replace(RELAYED, client=replace(RELAYED.client, **changes))


def relay(**changes: Any) -> DeliverSettings:
    """Settings with a relay of other properties."""
    [usual] = RELAYED.relays
    return replace(RELAYED, relays=(replace(usual, **changes),))


def serving(**how: Any) -> dict[str, Callable[[], Peer] | str | None]:
    """Hosts of which each connection leads to a peer of its own."""
    return {"192.0.2.1": lambda: Peer(**how)}


async def heard(settings: DeliverSettings, **how: Any) -> list[str]:
    """The commands that the first connection of a delivery has heard, once that is over."""
    async with Kit(settings, hosts=serving(**how)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
    return kit.dialer.peers[0].log


# ---------------------------------------------------------------- client


@pytest.mark.parametrize(
    ("say", "fallback", "verbs"), [(True, False, ["HELO"]), (False, True, ["EHLO", "HELO"])]
)
async def test_helo(say: bool, fallback: bool, verbs: list[str]) -> None:
    log = await heard(client(say_helo=say, fallback_helo=fallback), replies={"EHLO": "502 no"})
    assert [line.split()[0] for line in log[: len(verbs) + 1]] == [*verbs, "MAIL"]


async def test_without_fallback_a_refused_ehlo_defers() -> None:
    async with Kit(client(), hosts=serving(replies={"EHLO": "502 no"})) as kit:
        await kit.submit("to@example.com")
        assert (await kit.deferred()).attempt.phase is Phase.EHLO


@pytest.mark.parametrize(("most", "together"), [(25, 3), (2, 2), (1, 1), (0, 1)])
async def test_maxpipeline(most: int, together: int) -> None:
    async with Kit(client(maxpipeline=most)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        writes = kit.dialer.peers[0]._connection.writes
        assert writes[1].count(b"\r\n") == together


@pytest.mark.parametrize(("chunking", "verb"), [(True, "BDAT"), (False, "DATA")])
async def test_ext_chunking(chunking: bool, verb: str) -> None:
    log = await heard(client(ext_chunking=chunking), extensions=("PIPELINING", "CHUNKING"))
    assert [line.split()[0] for line in log[:4]] == ["EHLO", "MAIL", "RCPT", verb]


async def test_a_chunk_that_is_refused_stops_the_content() -> None:
    content = b"Subject: large\r\n\r\n" + b"x" * 70 * 30_000
    refusing = serving(extensions=("CHUNKING",), replies={"BDAT": "552 5.3.4 too large"})
    async with Kit(hosts=refusing) as kit:
        await kit.submit("to@example.com", content=content)
        await kit.heard(Verb.BOUNCED)
        assert len([line for line in kit.dialer.peers[0].log if line.startswith("BDAT")]) == 1


@pytest.mark.parametrize(("stage", "possibly", "minutes"), [("BDAT", False, 3), (".", True, 10)])
async def test_silence_raises_doubt_behind_the_last_chunk_only(
    stage: str, possibly: bool, minutes: int
) -> None:
    content = b"Subject: large\r\n\r\n".ljust(60 * 65_536, b"x")
    silent = serving(extensions=("CHUNKING", "PIPELINING"), replies={stage: None})
    async with Kit(client(mindatarate=1_000_000_000), hosts=silent) as kit:
        await kit.submit("to@example.com", content=content)
        sent = 27 if stage == "BDAT" else 62
        await kit.until(
            lambda: bool(kit.dialer.peers) and len(kit.dialer.peers[0]._connection.writes) == sent
        )
        await kit.clock.run_for(minutes * MINUTE - 2000)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(4000)
        assert (await kit.deferred()).possibly_delivered is possibly
        chunks = [line for line in kit.dialer.peers[0].log if line.startswith("BDAT")]
        assert len(chunks) == (1 if stage == "BDAT" else 60)
        assert len(kit.dialer.peers[0]._connection.writes) == sent


@pytest.mark.parametrize(("send", "last"), [(True, "QUIT"), (False, "DATA")])
async def test_send_quit(send: bool, last: str) -> None:
    assert (await heard(client(send_quit=send)))[-1] == last


@pytest.mark.parametrize("wait", [True, False])
async def test_wait_quit(wait: bool) -> None:
    settings = replace(client(wait_quit=wait), maxidletime=0)
    async with Kit(settings, hosts=serving(replies={"QUIT": None})) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.clock.run_for(MINUTE - 2000)
        assert kit.dialer.peers[0].open is wait
        await kit.clock.run_for(3000)
        assert not kit.dialer.peers[0].open


@pytest.mark.parametrize(("rate", "minutes"), [(8000, 12), (0, 10)])
async def test_mindatarate_lengthens_the_wait_by_the_transfer(rate: int, minutes: int) -> None:
    content = b"Subject: two minutes at 8000 bits a second\r\n\r\n".ljust(120_000, b"x")
    async with Kit(client(mindatarate=rate), hosts=serving(replies={".": None})) as kit:
        await kit.submit("to@example.com", content=content)
        await kit.clock.run_for(minutes * MINUTE - 3000)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(5000)
        assert (await kit.deferred()).possibly_delivered


async def test_timeout_is_what_the_limits_are_multiples_of() -> None:
    async with Kit(client(timeout=2 * MINUTE), hosts=serving(replies={"MAIL": None})) as kit:
        await kit.submit("to@example.com")
        await kit.clock.run_for(10 * MINUTE - 2000)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(4000)
        assert "600 s" in (await kit.deferred()).reply.text


@pytest.mark.parametrize(
    ("lmtp", "silent", "each", "reply", "minutes"),
    [(False, "RCPT", 290, b"250 ok\r\n", 15), (True, ".", 590, b"250 taken\r\n", 10)],
)
async def test_a_transaction_has_a_deadline_despite_replies(
    lmtp: bool, silent: str, each: int, reply: bytes, minutes: int
) -> None:
    people = [f"to{number}@example.com" for number in range(20)]
    keys = [f"RCPT {each}" for each in people] if silent == "RCPT" else [silent]
    hosts = serving(lmtp=lmtp, replies=dict.fromkeys(keys, None))
    async with Kit(relay(lmtp=lmtp), hosts=hosts) as kit:
        await kit.submit(*people)
        limit = kit.clock.monotonic() + (minutes + 20 // 10) * MINUTE
        await kit.until(lambda: bool(kit.dialer.peers))
        [peer] = kit.dialer.peers
        while kit.clock.monotonic() + each * 1000 < limit:
            await kit.clock.run_for(each * 1000)
            peer._connection.say(reply)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(limit - kit.clock.monotonic() + 2000)
        await kit.heard(Verb.DEFERRED)
        assert kit.observer.count(Verb.DELIVERED) + kit.observer.count(Verb.DEFERRED) == 20
        assert "not done within" in (await kit.deferred()).reply.text


# ---------------------------------------------------------------- other options for single networks


def other_net(**changes: Any) -> DeliverSettings:
    """Other options for the network that the relay lies in."""
    elsewhere = RemoteNetSettings(ip=(ip_network("198.51.100.0/24"),), announcehost="never.example")
    here = RemoteNetSettings(ip=(ip_network("10.0.0.0/8"), ip_network("192.0.2.0/24")), **changes)
    after = RemoteNetSettings(ip=(ip_network("192.0.2.1"),), announcehost="late.example")
    return client(remotenets=(elsewhere, here, after))


@pytest.mark.parametrize(
    ("changes", "how", "line", "expected"),
    [
        ({"announcehost": "other.example"}, {}, 0, "EHLO other.example"),
        ({"say_helo": True}, {}, 0, "HELO mx.example.org"),
        ({"fallback_helo": True}, {"replies": {"EHLO": "502 no"}}, 1, "HELO mx.example.org"),
        ({"ext_chunking": False}, {"extensions": ("CHUNKING",)}, 3, "DATA"),
        ({"anonssl": False}, {"extensions": ("STARTTLS",)}, 1, "MAIL FROM:<from@example.org>"),
        ({"send_quit": False}, {}, -1, "DATA"),
    ],
)
async def test_remotenets_change_what_is_said(
    changes: dict[str, Any], how: dict[str, Any], line: int, expected: str
) -> None:
    assert (await heard(other_net(**changes), **how))[line] == expected


async def test_remotenets_change_pipelining() -> None:
    async with Kit(other_net(maxpipeline=1)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert kit.dialer.peers[0]._connection.writes[1].count(b"\r\n") == 1


@pytest.mark.parametrize(
    ("changes", "minutes"), [({"timeout": MINUTE // 2}, 5), ({"mindatarate": 8000}, 12), ({}, 10)]
)
async def test_remotenets_change_time_limits(changes: dict[str, Any], minutes: int) -> None:
    content = b"Subject: two minutes at 8000 bits a second\r\n\r\n".ljust(120_000, b"x")
    async with Kit(other_net(**changes), hosts=serving(replies={".": None})) as kit:
        await kit.submit("to@example.com", content=content)
        await kit.clock.run_for(minutes * MINUTE - 3000)
        assert not kit.observer.of(Verb.DEFERRED)
        await kit.clock.run_for(6000)
        assert (await kit.deferred()).possibly_delivered


async def test_remotenets_change_waiting_for_quit() -> None:
    settings = replace(other_net(wait_quit=False), maxidletime=0)
    async with Kit(settings, hosts=serving(replies={"QUIT": None})) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED)
        await kit.until(lambda: not kit.dialer.peers[0].open)


async def test_remotenets_may_require_tls() -> None:
    async with Kit(other_net(tls_mandatory=True), hosts=serving(extensions=())) as kit:
        await kit.submit("to@example.com")
        assert (await kit.deferred()).reply.status == "4.7.4"


async def test_a_relay_that_wants_tls_goes_before_remotenets() -> None:
    [usual] = RELAYED.relays
    wanting = (replace(usual, ssl=SslSettings(latent=True)),)
    settings = replace(other_net(anonssl=False), relays=wanting)
    assert (await heard(settings, extensions=("STARTTLS",)))[1] == "STARTTLS"


@pytest.mark.parametrize("how", ["relay", "zone", "destination"])
async def test_a_chosen_tls_level_precedes_remotenets(how: str) -> None:
    [usual] = RELAYED.relays
    strict = replace(other_net(tls_mandatory=False, anonssl=False), relays=(usual,))
    strict = replace(strict, client=replace(strict.client, tls_mandatory=True))
    chosen: dict[str, dict[str, Any]] = {
        "relay": {"relays": (replace(usual, ssl=SslSettings(mandatory=True)),)},
        "zone": {"zones": (ZoneSettings(name="z", tls=TlsPolicy.ENCRYPT, matches=(ZoneMatchSettings(),)),)},
        "destination": {"destinations": (DestinationSettings(match="example.com", tls=TlsPolicy.ENCRYPT),)},
    }
    async with Kit(replace(strict, **chosen[how]), hosts=serving(extensions=())) as kit:
        await kit.submit("to@example.com")
        assert (await kit.deferred()).reply.status == "4.7.4"


# ---------------------------------------------------------------- connections that are kept


class Slow(Peer):
    """Takes 25 s over the end of a message."""

    clock: FakeClock

    def receive(self, data: bytes) -> None:
        if data.endswith(b"\r\n.\r\n"):
            self.clock.advance(25_000)
        super().receive(data)


async def test_maxconntime_ends_a_connection_however_busy() -> None:
    async with Kit(replace(RELAYED, maxconntime=MINUTE, maxserverconnections=1), {"192.0.2.1": Slow}) as kit:
        Slow.clock = kit.clock
        for number in range(4):
            await kit.submit(f"to{number}@example.com")
        await kit.heard(Verb.DELIVERED, 4)
        assert len(kit.dialer.dialled) == 2
        assert [line.split()[0] for line in kit.dialer.peers[0].log].count("MAIL") == 3


async def test_maxconntime_ends_a_connection_that_is_kept() -> None:
    settings = replace(RELAYED, maxconntime=MINUTE, maxidletime=10 * MINUTE)
    async with Kit(settings) as kit:
        for number in range(4):
            await kit.submit(f"to{number}@example.com")
            await kit.heard(Verb.DELIVERED, number + 1)
            await kit.clock.run_for(25_000)
        assert len(kit.dialer.dialled) == 2
        assert [line.split()[0] for line in kit.dialer.peers[0].log].count("MAIL") == 3


async def test_a_kept_connection_ends_when_its_settings_change() -> None:
    async with Kit(replace(RELAYED, maxidletime=10 * MINUTE)) as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        kit.deliverer.reload(relay(ssl=SslSettings(latent=True, mandatory=True)), SCHEDULE, ())
        await kit.submit("two@example.com")
        assert (await kit.deferred()).reply.status == "4.7.4"
        assert len(kit.dialer.dialled) == 2
        assert kit.dialer.peers[0].log[-1] == "QUIT"


async def test_a_kept_connection_survives_an_unchanged_reload() -> None:
    settings = replace(RELAYED, maxidletime=10 * MINUTE)
    async with Kit(settings) as kit:
        await kit.submit("one@example.com")
        await kit.heard(Verb.DELIVERED)
        kit.deliverer.reload(settings, SCHEDULE, ())
        await kit.submit("two@example.com")
        await kit.heard(Verb.DELIVERED, 2)
        assert len(kit.dialer.dialled) == 1


@pytest.mark.parametrize(("idle", "connections"), [(0, 2), (5_000, 2), (20_000, 1)])
async def test_maxidletime(idle: int, connections: int) -> None:
    async with Kit(replace(RELAYED, maxidletime=idle)) as kit:
        for number in range(2):
            await kit.submit(f"to{number}@example.com")
            await kit.heard(Verb.DELIVERED, number + 1)
            await kit.clock.run_for(10_000)
        assert len(kit.dialer.dialled) == connections


# ---------------------------------------------------------------- TLS


TLS = ("PIPELINING", "STARTTLS")
EVERYTHING = ZoneMatchSettings()


async def test_anonssl_off() -> None:
    assert "STARTTLS" not in await heard(client(anonssl=False), extensions=TLS)


@pytest.mark.parametrize(
    "settings",
    [
        client(tls_mandatory=True),
        relay(ssl=SslSettings(latent=True, mandatory=True)),
        relay(ssl=SslSettings(latent=True, verify=True)),
        replace(RELAYED, destinations=(DestinationSettings(match="*", tls=TlsPolicy.ENCRYPT),)),
        replace(RELAYED, destinations=(DestinationSettings(match="*", tls=TlsPolicy.VERIFY),)),
        replace(RELAYED, zones=(ZoneSettings(name="z", tls=TlsPolicy.ENCRYPT, matches=(EVERYTHING,)),)),
    ],
)
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"extensions": ()}, "4.7.4"),
        ({"extensions": TLS, "replies": {"STARTTLS": "454 4.7.0 no"}}, "4.7.4"),
        ({"extensions": TLS, "tls_works": False}, "4.7.5"),
    ],
)
async def test_where_tls_is_required_nothing_goes_without(
    settings: DeliverSettings, how: dict[str, Any], status: str
) -> None:
    async with Kit(settings, hosts=serving(**how)) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.status, verdict.attempt.phase) == (status, Phase.TLS)
        assert not [line for peer in kit.dialer.peers for line in peer.log if line.startswith("MAIL")]
        assert len(kit.dialer.dialled) == 1


async def test_terms_of_a_relay_and_the_trust_of_all() -> None:
    ssl = SslSettings(latent=True, verify=True, certfile=CERTIFICATE, keyfile=KEY)
    settings = replace(relay(ssl=ssl), client=replace(RELAYED.client, trust=TRUST))
    async with Kit(settings, hosts=serving(extensions=TLS)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        terms = kit.dialer.peers[0].tls_terms
        assert terms is not None
        assert (terms.verify, terms.trust, terms.certificate, terms.key) == (
            True,
            "/t.pem",
            "/c.pem",
            "/k.pem",
        )


@pytest.mark.parametrize("ssl", [SslSettings(latent=True), SslSettings(latent=True, mandatory=True)])
async def test_without_verify_no_certificate_is_looked_at(ssl: SslSettings) -> None:
    async with Kit(relay(ssl=ssl), hosts=serving(extensions=TLS)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        terms = kit.dialer.peers[0].tls_terms
        assert terms is not None
        assert not terms.verify


@pytest.mark.parametrize(
    ("wanted", "verify"), [(TlsPolicy.MAY, False), (TlsPolicy.ENCRYPT, False), (TlsPolicy.VERIFY, True)]
)
async def test_a_destination_says_whether_certificates_are_looked_at(wanted: TlsPolicy, verify: bool) -> None:
    settings = replace(RELAYED, destinations=(DestinationSettings(match="example.com", tls=wanted),))
    async with Kit(settings, hosts=serving(extensions=TLS)) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert kit.dialer.peers[0].tls_terms == TlsTerms(verify=verify)


async def test_a_destination_may_do_without_tls() -> None:
    settings = replace(RELAYED, destinations=(DestinationSettings(match="*", tls=TlsPolicy.NONE),))
    assert "STARTTLS" not in await heard(settings, extensions=TLS)


async def test_latent_asks_for_tls_also_where_anonssl_is_off() -> None:
    settings = replace(relay(ssl=SslSettings(latent=True)), client=replace(RELAYED.client, anonssl=False))
    assert "STARTTLS" in await heard(settings, extensions=TLS)


async def test_not_latent_means_tls_from_the_first_octet() -> None:
    async with Kit(relay(ssl=SslSettings(latent=False)), hosts=serving(tls_first=True)) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.delivered()
        assert verdict.attempt.tls == "TLSv1.3"
        assert "STARTTLS" not in kit.dialer.peers[0].log


async def test_tls_that_fails_is_not_tried_again_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mqcd.deliver")
    settings = replace(RELAYED, maxidletime=0)
    async with Kit(settings, hosts=serving(extensions=TLS, tls_works=False)) as kit:
        for number in range(2):
            await kit.submit(f"to{number}@example.com")
            await kit.heard(Verb.DELIVERED, number + 1)
        assert [("STARTTLS" in peer.log) for peer in kit.dialer.peers] == [True, False, False]
        [record] = caplog.records
        assert "TLS with 192.0.2.1 [192.0.2.1]" in record.message
        assert record.__dict__["session"].startswith("out-")
        await kit.clock.run_for(11 * MINUTE)
        await kit.submit("later@example.com")
        await kit.heard(Verb.DELIVERED, 3)
        assert [("STARTTLS" in peer.log) for peer in kit.dialer.peers[3:]] == [True, False]


# ---------------------------------------------------------------- login


AUTH = AuthSettings(enabled=True, username="user", password=Secret("secret"))
SECURE = ("PIPELINING", "STARTTLS", "AUTH PLAIN LOGIN CRAM-MD5")


def auth(**changes: Any) -> DeliverSettings:
    """Settings with a relay that is logged in to."""
    return relay(auth=replace(AUTH, **changes))


async def test_a_login_comes_between_hello_and_mail() -> None:
    log = await heard(auth(override=Mechanism.PLAIN), extensions=SECURE)
    assert log[1:5] == ["STARTTLS", "EHLO mx.example.org", "AUTH PLAIN AHVzZXIAc2VjcmV0", log[4]]
    assert log[4].startswith("MAIL")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "AUTH CRAM-MD5"),
        ({"override": Mechanism.LOGIN}, "AUTH LOGIN"),
        ({"override": Mechanism.PLAIN, "initrsp": False}, "AUTH PLAIN"),
    ],
)
async def test_how_to_log_in(changes: dict[str, Any], line: str) -> None:
    assert (await heard(auth(**changes), extensions=SECURE))[3] == line


async def test_no_login_where_none_is_enabled() -> None:
    assert not [line for line in await heard(auth(enabled=False), extensions=SECURE) if "AUTH" in line]


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA"])
async def test_a_relay_that_wants_a_login_costs_no_mail(stage: str) -> None:
    async with Kit(hosts=serving(replies={stage: "530 5.7.0 Authentication required"})) as kit:
        await kit.submit("to@example.com")
        verdict = await kit.deferred()
        assert (verdict.reply.code, verdict.reply.status) == (451, "4.7.0")
        assert verdict.reply.text.endswith("530 5.7.0 Authentication required")


async def test_a_host_found_by_dns_that_wants_a_login_takes_no_mail() -> None:
    resolver = FakeResolver(addresses={"example.com": ["192.0.2.1"]})
    wanting = serving(replies={"MAIL": "530 5.7.0 Authentication required"})
    async with Kit(BY_DNS, hosts=wanting, resolver=resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.BOUNCED)


async def test_each_login_has_a_lane_of_its_own() -> None:
    [usual] = RELAYED.relays
    relays = (
        replace(usual, auth=AUTH, senders=("a@example.org",)),
        replace(usual, auth=replace(AUTH, username="other")),
    )
    async with Kit(replace(RELAYED, relays=relays), hosts=serving(extensions=SECURE)) as kit:
        await kit.submit("to@example.com", sender="a@example.org")
        await kit.submit("to@example.com", sender="b@example.org")
        await kit.deliverer.drained()
        assert {lane.destination for lane in kit.deliverer.lanes()} == {
            "192.0.2.1:2525 as user",
            "192.0.2.1:2525 as other",
        }


# ---------------------------------------------------------------- LMTP
