"""Conditions on zones and sites select the mail that goes out by them."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from mqcd.config.settings import (
    DeliverSettings,
    HostPort,
    RelaySettings,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.live import resolved
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.deliver.routing.policy import Policies
from mqcd.deliver.routing.router import Router
from mqcd.queue.format import record
from mqcd.queue.format.choosing import chooser
from tests.fakes.clock import FakeClock
from tests.fakes.resolver import FakeResolver
from tests.unit.queue.support import recipient

SCHEDULE = RetrySchedule(delays=(900,), maxtime=9000, maxtime_reports=9000)
SENDERS = ["", "a@x.example", "A@X.example", "b*@x.example", "bc@x.example", "a@y.example", "postmaster"]
ADDRESSES = ["r@x.example", "r@sub.x.example", "r@Y.example.", "r@[192.0.2.1]", "postmaster"]


def some(*texts: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(texts), max_size=2).map(tuple)


MATCHES = st.builds(
    ZoneMatchSettings,
    sender=some("<>", "x.example", "a@x.example", "b*@X.example"),
    domain=some("*", "*.x.example", "x.example", "Y.example", "[192.0.2.1]"),
    listener=some("smtp", "submission"),
    header=some("X-Bulk"),
    user=some("Joe", "ann"),
)


def _named(matches: list[tuple[ZoneMatchSettings, ...]]) -> tuple[ZoneSettings, ...]:
    return tuple(ZoneSettings(name=f"z{n}", matches=each) for n, each in enumerate(matches))


ZONES = st.lists(st.lists(MATCHES, max_size=2).map(tuple), max_size=3).map(_named)


@given(
    ZONES,
    st.fixed_dictionaries(
        {
            "sender": st.sampled_from(SENDERS),
            "address": st.sampled_from(ADDRESSES),
            "zone": st.sampled_from(["", "z0", "z1"]),
            "listener": st.sampled_from(["smtp", "SMTP", "other"]),
            "user": st.sampled_from(["", "joe"]),
            "route": st.sampled_from(["", "relay.example:25"]),
        }
    ),
)
def test_a_zone_selects_what_delivery_sends_by_it(
    zones: tuple[ZoneSettings, ...], fields: dict[str, str]
) -> None:
    policies = Policies(DeliverSettings(zones=zones), SCHEDULE)
    mail = recipient(**fields)
    own = policies.zone_of(mail.envelope, mail.lane_key)
    line = record.verify(record.encode(mail))
    for name, condition in policies.zones.items():
        asked = parse_where(f"zone = '{name}'", 0, live=True)
        where = resolved(asked, zones=policies.zones)
        assert where.root == condition
        assert where.matches(mail) is (name == own)
        # What another process gets is a text.
        again = parse_where(str(where), 0)
        chosen = chooser(Selection(where=again))
        assert chosen is not None
        assert chosen(line) is (name == own)


def _relays(entries: list[RelaySettings]) -> tuple[RelaySettings, ...]:
    return tuple(
        RelaySettings(
            address=HostPort(host=f"r{n}.example", port=25),
            destdomains=each.destdomains,
            senders=each.senders,
            sendernets=each.sendernets,
        )
        for n, each in enumerate(entries)
    )


RELAYS = st.lists(
    st.builds(
        RelaySettings,
        senders=some("<>", "x.example", "a@x.example", "b*@X.example", "y.example"),
        sendernets=st.sampled_from([(), (ip_network("192.0.2.0/24"),)]),
        destdomains=some("x.example", "y.example"),
    ),
    max_size=4,
).map(_relays)


@given(
    RELAYS,
    st.sampled_from(SENDERS),
    st.sampled_from(ADDRESSES),
    st.sampled_from(["", "192.0.2.9", "203.0.113.1"]),
    st.sampled_from(["", "r0.example:25", "other.example:26"]),
)
def test_a_site_selects_what_delivery_sends_there(
    relays: tuple[RelaySettings, ...], sender: str, address: str, client: str, route: str
) -> None:
    router = Router(DeliverSettings(relays=relays), SCHEDULE, FakeResolver({}), FakeClock())
    mail = recipient(sender=sender, address=address, client=client, route=route)
    own = router.chosen(mail) if route else router.known(mail.envelope, mail.domain)
    site = "" if own is None else own.destination.name
    # What another sender's mail has shown of the domain is no site of this one's.
    known = router.sites()
    by_domain = Router(
        DeliverSettings(relays=tuple(each for each in relays if not each.senders and not each.sendernets)),
        SCHEDULE,
        FakeResolver({}),
        FakeClock(),
    ).known(mail.envelope, mail.domain)
    sites = {mail.domain: "" if by_domain is None else by_domain.destination.name}
    assert known.items() <= ({route: site} if route else sites).items()
    for n, _ in enumerate(relays):
        name = f"r{n}.example:25"
        for text in f"site = {name}", f"site in (other.example:26, {name})", f"not site != {name}":
            asked = parse_where(text, 0, live=True)
            sites_now = {**sites, **({route: site} if route else {})}
            where = resolved(asked, sites=sites_now, origins=router.origins)
            again = parse_where(str(where), 0)
            meant = site == name or (" in " in text and site == "other.example:26")
            assert again.matches(mail) is meant
