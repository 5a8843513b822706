"""Where mail goes."""

import pytest

from mqcd.core.ports import MxHost
from mqcd.deliver import routing
from mqcd.deliver.routing import Destination, Unroutable


def mx(*records: tuple[int, str]) -> list[MxHost]:
    return [MxHost(preference=preference, host=host) for preference, host in records]


def destination(route: routing.Route | None) -> Destination:
    assert isinstance(route, Destination)
    return route


def test_a_domains_own_relay_comes_before_the_default_one() -> None:
    relays = routing.relays([("default.example", 25, ()), ("2001:db8::1", 2525, ("a.example", "b.example"))])
    assert destination(relays.find("a.example")).name == "[2001:db8::1]:2525"
    assert relays.find("a.example") is relays.find("b.example")
    assert destination(relays.find("c.example")).name == "default.example:25"
    assert routing.relays([("x.example", 25, ("a.example",))]).find("c.example") is None


def test_domains_with_the_same_mx_set_share_a_destination() -> None:
    one = destination(routing.by_mx("one.example", mx((10, "a.mx"), (20, "b.mx")), 25, False))
    two = destination(routing.by_mx("two.example", mx((5, "a.mx"), (7, "b.mx")), 25, False))
    other = destination(routing.by_mx("two.example", mx((5, "a.mx"), (7, "c.mx")), 25, False))
    assert one.name == two.name
    assert one.name != other.name
    assert one.name.startswith("a.mx+1-")


def test_null_mx_is_permanent() -> None:
    route = routing.by_mx("example.com", mx((0, "")), 25, False)
    assert isinstance(route, Unroutable)
    assert str(route.reply).startswith("550 5.1.10 ")


def test_no_mx_means_the_domain_itself() -> None:
    assert destination(routing.by_mx("example.com", [], 2525, False)).hosts == (("example.com",),)


def test_the_fallback_address_comes_last_in_a_lane_of_its_own() -> None:
    route = destination(routing.by_mx("example.com", mx((10, "a.mx")), 25, True))
    assert route.hosts == (("a.mx",), ("example.com",))
    assert route.name != destination(routing.by_mx("other.example", mx((10, "a.mx")), 25, True)).name


def test_hosts_go_by_preference_and_equals_take_turns() -> None:
    route = destination(routing.by_mx("example.com", mx((20, "c"), (10, "a"), (10, "b")), 25, False))
    assert routing.order(route, 0) == ["a", "b", "c"]
    assert routing.order(route, 1) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("domain", "address"), [("[192.0.2.1]", "192.0.2.1"), ("[IPv6:2001:db8::1]", "2001:db8::1")]
)
def test_address_literals_go_to_their_address(domain: str, address: str) -> None:
    assert destination(routing.literal(domain, 25)).hosts == ((address,),)


def test_a_literal_that_says_nothing_is_permanent_and_a_name_is_none() -> None:
    assert isinstance(routing.literal("[nonsense]", 25), Unroutable)
    assert routing.literal("example.com", 25) is None
