"""Where mail goes."""

from collections import Counter
from dataclasses import replace
from ipaddress import ip_network

import pytest

from mqcd.config.settings import HostPort, RelaySettings, SslSettings
from mqcd.core.model import Envelope
from mqcd.core.ports import MxHost
from mqcd.deliver.routing import routing
from mqcd.deliver.routing.routing import Destination, Relays, Rule, Unroutable


def mx(*records: tuple[int, str]) -> list[MxHost]:
    return [MxHost(preference=preference, host=host) for preference, host in records]


def destination(route: routing.Route | None) -> Destination:
    assert isinstance(route, Destination)
    return route


def relay(host: str, port: int = 25, *, to: str = "", senders: str = "", nets: str = "") -> RelaySettings:
    return RelaySettings(
        address=HostPort(host=host, port=port),
        destdomains=tuple(to.split()),
        senders=tuple(senders.split()),
        sendernets=tuple(ip_network(net) for net in nets.split()),
    )


def mail(sender: str = "ann@lists.example", client: str = "192.0.2.9") -> Envelope:
    return Envelope(spid=2, sender=sender, received=0, client=client)


def test_a_domains_own_relay_comes_before_the_default_one() -> None:
    relays = Relays([relay("default.example"), relay("2001:db8::1", 2525, to="a.example b.example")])
    found = relays.find(mail(), "a.example")
    assert found is not None
    assert (found[0].name, found[1]) == ("[2001:db8::1]:2525", Rule.DOMAIN)
    assert found == relays.find(mail(), "b.example")
    usual = relays.find(mail(), "c.example")
    assert usual is not None
    assert (usual[0].name, usual[1]) == ("default.example:25", Rule.DEFAULT)
    assert Relays([relay("x.example", to="a.example")]).find(mail(), "c.example") is None


def test_relays_with_other_options_have_their_own_lanes() -> None:
    plain, again, lmtp, tls = (relay("x.example", to=f"{name}.example") for name in "abcd")
    lmtp = replace(lmtp, lmtp=True)
    tls = replace(tls, ssl=SslSettings(mandatory=True))
    relays = Relays([plain, again, lmtp, tls])
    found = [relays.find(mail(), f"{name}.example") for name in "abcd"]
    names = [each[0].name for each in found if each is not None]
    assert names == ["x.example:25", "x.example:25", "x.example:25 #2", "x.example:25 #3"]


@pytest.mark.parametrize(
    ("sender", "client", "domain", "host"),
    [
        ("ann@lists.example", "203.0.113.1", "a.example", "whole"),
        ("ANN@Lists.example", "203.0.113.1", "a.example", "whole"),
        ("bob@lists.example", "203.0.113.1", "a.example", "domain"),
        ("bob@lists.example", "203.0.113.1", "b.example", "domain"),
        ("bob@else.example", "192.0.2.9", "a.example", "nets"),
        ("bob@lists.example", "192.0.2.9", "a.example", "domain"),
        ("carl@both.example", "192.0.2.9", "a.example", "both"),
        ("carl@both.example", "203.0.113.1", "a.example", "own"),
        ("carl@some.example", "203.0.113.1", "only.example", "some"),
        ("carl@some.example", "203.0.113.1", "b.example", "default"),
        ("", "203.0.113.1", "b.example", "null"),
        ("", "", "a.example", "null"),
    ],
)
def test_a_specific_origin_precedes_the_recipients_domain(
    sender: str, client: str, domain: str, host: str
) -> None:
    relays = Relays(
        [
            relay("default"),
            relay("own", to="a.example"),
            relay("nets", nets="192.0.2.0/24 2001:db8::/32"),
            relay("domain", senders="lists.example"),
            relay("whole", senders="other.example ann@lists.example"),
            relay("both", senders="both.example", nets="192.0.2.9"),
            relay("some", senders="some.example", to="only.example"),
            relay("null", senders="<>"),
        ]
    )
    found = relays.find(mail(sender, client), domain)
    assert found is not None
    assert found[0].name == f"{host}:25"


def test_our_own_mx_and_less_preferred_ones_are_skipped() -> None:
    found = mx((10, "better.example"), (20, "me.example"), (20, "beside.example"), (30, "behind.example"))
    route = destination(routing.by_mx("d.example", found, 25, False, {"me.example"}))
    assert route.hosts == (("better.example",),)
    back = routing.by_mx("d.example", found[1:], 25, False, {"me.example"})
    assert isinstance(back, Unroutable)
    assert str(back.reply).startswith("550 5.4.6 ")


@pytest.mark.parametrize("fallback", [False, True])
def test_a_domain_of_our_own_is_not_sent_to_itself(fallback: bool) -> None:
    back = routing.by_mx("me.example", [], 25, fallback, {"me.example"})
    assert isinstance(back, Unroutable)
    assert str(back.reply).startswith("550 5.4.6 ")


@pytest.mark.parametrize(
    ("domain", "found"),
    [
        ("me.example", mx((10, "other.example"))),
        ("d.example", mx((10, "other.example"), (20, "me.example"))),
    ],
)
def test_the_fallback_address_is_not_a_way_back_to_ourselves(domain: str, found: list[MxHost]) -> None:
    route = destination(routing.by_mx(domain, found, 25, True, {"me.example"}))
    assert route.hosts == (("other.example",),)


def test_domains_with_the_same_mx_set_share_a_destination() -> None:
    one = destination(routing.by_mx("one.example", mx((10, "a.mx"), (20, "b.mx")), 25, False))
    two = destination(routing.by_mx("two.example", mx((5, "a.mx"), (7, "b.mx")), 25, False))
    other = destination(routing.by_mx("two.example", mx((5, "a.mx"), (7, "c.mx")), 25, False))
    assert one.name == two.name
    assert one.name != other.name
    assert one.name.startswith("a.mx+1-")


def test_a_stranger_finds_no_hosts_that_make_another_sites_name() -> None:
    victim = mx((10, "mx1.victim.example"), (10, "mx2.victim.example"))
    made = "xppppqppqqqqpqqppqqppqpqpqqppqppqpppppppp.evil.example"  # The CRC32 of both sets is the same.
    stranger = mx((10, "mx1.victim.example"), (10, made))
    one = destination(routing.by_mx("victim.example", victim, 25, False))
    two = destination(routing.by_mx("evil.example", stranger, 25, False))
    assert one.name != two.name


def test_hosts_are_shared_whatever_their_preference() -> None:
    one = Destination(name="a", hosts=(("a.mx",), ("b.mx",)), port=25)
    assert one.shares_hosts(replace(one, name="b"))
    assert one.shares_hosts(replace(one, hosts=(("b.mx", "a.mx"),)))
    assert not one.shares_hosts(replace(one, hosts=(("a.mx",), ("c.mx",))))
    assert not one.shares_hosts(replace(one, port=2525))


def test_null_mx_is_permanent() -> None:
    route = routing.by_mx("example.com", mx((0, "")), 25, False)
    assert isinstance(route, Unroutable)
    assert str(route.reply).startswith("550 5.1.10 ")


def test_a_null_mx_beside_others_says_nothing() -> None:
    assert destination(routing.by_mx("example.com", mx((0, ""), (10, "a.mx")), 25, False)).hosts == (
        ("a.mx",),
    )


def test_no_mx_means_the_domain_itself() -> None:
    assert destination(routing.by_mx("example.com", [], 2525, False)).hosts == (("example.com",),)


def test_the_fallback_address_comes_last_in_a_lane_of_its_own() -> None:
    route = destination(routing.by_mx("example.com", mx((10, "a.mx")), 25, True))
    assert route.hosts == (("a.mx",), ("example.com",))
    assert route.name != destination(routing.by_mx("other.example", mx((10, "a.mx")), 25, True)).name


def test_hosts_go_by_preference_and_equals_share_every_place() -> None:
    found = mx((20, "z"), (10, "a"), (10, "b"), (10, "c"))
    route = destination(routing.by_mx("example.com", found, 25, False))
    orders = [routing.order(route, turn) for turn in range(6000)]
    assert {each[3] for each in orders} == {"z"}
    counts = Counter(tuple(each[:3]) for each in orders)
    assert len(counts) == 6
    assert min(counts.values()) > 800


@pytest.mark.parametrize(
    ("domain", "address"), [("[192.0.2.1]", "192.0.2.1"), ("[IPv6:2001:db8::1]", "2001:db8::1")]
)
def test_address_literals_go_to_their_address(domain: str, address: str) -> None:
    assert destination(routing.literal(domain, 25)).hosts == ((address,),)


def test_an_empty_literal_fails_for_good_a_name_is_no_literal() -> None:
    assert isinstance(routing.literal("[nonsense]", 25), Unroutable)
    assert routing.literal("example.com", 25) is None
