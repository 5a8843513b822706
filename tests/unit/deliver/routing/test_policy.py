"""Which zone takes a recipient, and what is said for a destination: rules over values."""

import pytest

from mqcd.config.advice import Shaping
from mqcd.config.settings import (
    ClientSettings,
    DeliverSettings,
    DestinationSettings,
    Rate,
    Source,
    TlsPolicy,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.core.address import fits_name, sent_by
from mqcd.core.model import Envelope
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.selecting.rules import RuleAction, StandingRule
from mqcd.core.selecting.where import parse_where
from mqcd.deliver.routing.policy import Policies, hop, sources_for
from mqcd.deliver.routing.routing import Destination

SCHEDULE = RetrySchedule(delays=(900, 1800), maxtime=9000, maxtime_reports=9000, jitter=0.1)


def envelope(
    sender: str = "news@lists.example", *, zone: str = "", listener: str = "SMTP", user: str = ""
) -> Envelope:
    return Envelope(spid=2, sender=sender, received=0, zone=zone, listener=listener, user=user)


def zoned(*matches: ZoneMatchSettings, name: str = "bulk") -> Policies:
    zone = ZoneSettings(name=name, matches=matches)
    return Policies(DeliverSettings(zones=(zone,)), SCHEDULE)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        (ZoneMatchSettings(), True),
        (ZoneMatchSettings(sender=("lists.example",)), True),
        (ZoneMatchSettings(sender=("NEWS@Lists.example",)), True),
        (ZoneMatchSettings(sender=("other@lists.example",)), False),
        (ZoneMatchSettings(sender=("<>",)), False),
        (ZoneMatchSettings(domain=("d.example",)), True),
        (ZoneMatchSettings(domain=("*.d.example", "*.example")), True),
        (ZoneMatchSettings(domain=("*.d.example",)), False),
        (ZoneMatchSettings(listener=("SMTP",), user=("ann",)), True),
        (ZoneMatchSettings(listener=("other",), user=("ann",)), False),
        (ZoneMatchSettings(listener=("SMTP",), user=("bob",)), False),
        (ZoneMatchSettings(header=("X-Bulk",)), False),
    ],
)
def test_a_match_fits_where_all_that_it_names_fits(match: ZoneMatchSettings, fits: bool) -> None:
    assert zoned(match).zone_of(envelope(user="ann"), "d.example") == ("bulk" if fits else "")


def test_a_header_match_needs_the_other_matches_too() -> None:
    rules = zoned(ZoneMatchSettings(header=("X-Bulk",), domain=("d.example",)))
    assert rules.zone_of(envelope(zone="bulk"), "d.example") == "bulk"
    assert rules.zone_of(envelope(zone="bulk"), "e.example") == ""
    assert rules.zone_of(envelope(zone="other"), "d.example") == ""


def test_one_match_suffices_and_none_takes_nothing() -> None:
    rules = zoned(ZoneMatchSettings(user=("bob",)), ZoneMatchSettings(domain=("d.example",)))
    assert rules.zone_of(envelope(), "d.example") == "bulk"
    assert zoned().zone_of(envelope(), "d.example") == ""


def test_the_first_zone_that_takes_it_has_it() -> None:
    every = (ZoneMatchSettings(),)
    zones = (ZoneSettings(name="one", matches=every), ZoneSettings(name="two", matches=every))
    assert Policies(DeliverSettings(zones=zones), SCHEDULE).zone_of(envelope(), "d.example") == "one"


def test_a_destinations_settings_precede_its_zones() -> None:
    rules = Policies(
        DeliverSettings(
            client=ClientSettings(announcehost="mx.example.org", anonssl=False),
            maxserverconnections=21,
            zones=(
                ZoneSettings(
                    name="bulk",
                    helo="bulk.example.org",
                    maxserverconnections=5,
                    tls=TlsPolicy.ENCRYPT,
                    sources=(Source(address="192.0.2.7"),),
                ),
            ),
            destinations=(
                DestinationSettings(match="*.mail.example", maxserverconnections=3, retry_delays=(60,)),
                DestinationSettings(match="d.example", tls=TlsPolicy.VERIFY, probe_interval=5),
            ),
        ),
        SCHEDULE,
    )
    plain = rules.policy("", "else.example", ["mx.else.example"])
    assert (plain.helo, plain.connections, plain.tls) == ("mx.example.org", 21, TlsPolicy.NONE)
    assert plain.schedule is SCHEDULE
    zone = rules.policy("bulk", "else.example", ["mx.else.example"])
    assert (zone.helo, zone.connections, zone.tls) == ("bulk.example.org", 5, TlsPolicy.ENCRYPT)
    assert zone.sources == (Source(address="192.0.2.7"),)
    site = rules.policy("bulk", "else.example", ["mx.else.example", "a.mail.example"])
    assert (site.connections, site.tls, site.entry) == (3, TlsPolicy.ENCRYPT, "*.mail.example")
    assert site.schedule.delays == (60,)
    assert site.schedule.jitter == SCHEDULE.jitter
    domain = rules.policy("bulk", "d.example", ["a.mail.example"])
    assert (domain.connections, domain.tls, domain.entry) == (5, TlsPolicy.VERIFY, "d.example")
    assert domain.probe_interval == 5
    assert rules.policy("bulk", "d.example", ["a.mail.example"]) is domain


def test_advice_says_what_no_destination_element_says() -> None:
    def shaping(match: str, connections: int, rate: int = 0) -> Shaping:
        return Shaping(
            id=f"d-{match}",
            match=match,
            maxserverconnections=connections,
            rate=Rate(count=rate, per=1000) if rate else None,
            retry_delays=(120,),
            reason="r",
            since=1,
            until=2,
        )

    own = DestinationSettings(match="d.example", maxserverconnections=7)
    rules = Policies(
        DeliverSettings(maxserverconnections=9, destinations=(own,)),
        SCHEDULE,
        (shaping("*.example", 3, rate=5), shaping("big.test", 50)),
    )
    advised = rules.policy("", "a.example", [])
    assert (advised.connections, advised.rate, advised.advice) == (3, Rate(count=5, per=1000), "d-*.example")
    assert advised.schedule.delays == (120,)
    # The operator's own word on connections stands; what it does not say comes from advice.
    both = rules.policy("", "d.example", [])
    assert (both.connections, both.rate, both.entry) == (7, Rate(count=5, per=1000), "d.example")
    # Never more connections than the operator allows to anybody.
    assert rules.policy("", "big.test", []).connections == 9
    assert rules.policy("", "other.test", []).advice == ""


def test_the_most_specific_element_counts_in_any_order() -> None:
    entries = ("*", "*.example", "mx.example", "d.example", "d.example")
    rules = Policies(
        DeliverSettings(
            destinations=tuple(
                DestinationSettings(match=match, maxserverconnections=number)
                for number, match in enumerate(entries, start=1)
            )
        ),
        SCHEDULE,
    )
    assert rules.policy("", "d.example", ["mx.example"]).connections == 4
    assert rules.policy("", "e.example", ["mx.example"]).connections == 1
    some = Policies(DeliverSettings(destinations=(DestinationSettings(match="mx.example"),)), SCHEDULE)
    assert some.policy("", "e.example", ["mx.example"]).entry == "mx.example"
    assert some.policy("", "e.example", ["other.example"]).entry == ""


def test_each_zone_and_element_has_lanes_of_its_own() -> None:
    rules = Policies(
        DeliverSettings(
            zones=(ZoneSettings(name="bulk"),), destinations=(DestinationSettings(match="d.example"),)
        ),
        SCHEDULE,
    )
    site = Destination(name="mx.example", hosts=(("mx.example",),), port=25)
    keys = [
        hop(site, rules.policy(zone, domain, ["mx.example"])).key
        for zone in ("", "bulk")
        for domain in ("d.example", "e.example", "f.example")
    ]
    assert keys == [
        "mx.example/d.example",
        "mx.example",
        "mx.example",
        "mx.example/d.example via bulk",
        "mx.example via bulk",
        "mx.example via bulk",
    ]


def test_own_addresses_alternate_by_weight_within_a_family() -> None:
    sources = (
        Source(address="192.0.2.1", weight=2),
        Source(address="2001:db8::1"),
        Source(address="192.0.2.2"),
    )
    chosen = [sources_for(sources, "198.51.100.1", turn) for turn in range(6)]
    first, second = "192.0.2.1", "192.0.2.2"
    assert chosen == [[first, second], [first, second], [second, first]] * 2
    assert sources_for(sources, "2001:db8::9", 5) == ["2001:db8::1"]
    assert sources_for(sources[:1], "2001:db8::9", 0) == []
    assert sources_for((), "198.51.100.1", 0) == [""]


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("d.example", "d.example", True),
        ("D.Example", "d.example", True),
        ("*.d.example", "a.d.example", True),
        ("*.d.example", "d.example", False),
        ("*.d.example", "ad.example", False),
        ("*", "anything", True),
        ("b\u00fccher.example", "xn--bcher-kva.example", True),
    ],
)
def test_patterns_of_names(pattern: str, name: str, fits: bool) -> None:
    assert fits_name(pattern, name) is fits


def test_senders_by_address_by_domain_and_the_null_one() -> None:
    assert sent_by(("<>",), "")
    assert not sent_by(("<>",), "a@b.example")
    assert sent_by(("b.example",), "a@B.example")
    assert not sent_by(("a@b.example",), "c@b.example")


@pytest.mark.parametrize(("most", "own", "shared"), [(20, 5, 0), (4, 1, 0), (3, 1, 3), (1, 1, 1), (0, 0, 0)])
def test_connections_are_divided_and_rates_shared(most: int, own: int, shared: int) -> None:
    destination = DestinationSettings(match="d.example", rate=Rate(count=10, per=1000))
    settings = DeliverSettings(maxserverconnections=most, destinations=(destination,))
    policy = Policies(settings, SCHEDULE, processes=4).policy("", "d.example", ["mx.d.example"])
    assert (policy.connections, policy.shared) == (own, shared)
    assert policy.rate == Rate(count=10, per=1000)
    whole = Policies(settings, SCHEDULE).policy("", "d.example", ["mx.d.example"])
    assert (whole.connections, whole.shared, whole.rate) == (most, 0, destination.rate)


@pytest.mark.parametrize(
    ("most", "rule", "own", "shared"),
    [(4, 1, 1, 1), (3, 2, 1, 2), (20, 8, 2, 0), (7, 5, 1, 0), (2, 3, 1, 2), (4, 0, 1, 0), (0, 3, 1, 3)],
)
def test_a_rule_slows_what_the_shards_have_together(most: int, rule: int, own: int, shared: int) -> None:
    policies = Policies(DeliverSettings(maxserverconnections=most), SCHEDULE, processes=4)
    where = parse_where("domain = d.example", 0, live=True)
    slow = StandingRule(id="slow-1", action=RuleAction.SLOW, where=where, at=0, by="", connections=rule)
    made = policies.slowed(policies.policy("", "d.example", ["mx.d.example"]), slow)
    assert (made.connections, made.shared) == (own, shared)
