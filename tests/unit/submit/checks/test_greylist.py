"""Which deliveries have to come again, and when."""

from __future__ import annotations

import ipaddress

import pytest

from mqcd.config.settings import ServerSettings
from mqcd.submit.checks.greylist import Entry, GreylistRules, Terms, Triplet, judge, try_again

TERMS = Terms(delay=300, window=5000, lifetime=100_000)
NOW = 1_000_000


@pytest.mark.parametrize(
    ("entry", "wait", "then"),
    [
        (None, 300, Entry(first=NOW)),
        (Entry(first=NOW - 1), 299, Entry(first=NOW - 1)),
        (Entry(first=NOW - 299), 1, Entry(first=NOW - 299)),
        (Entry(first=NOW - 300), 0, Entry(first=NOW - 300, passed=NOW)),
        (Entry(first=NOW - 4999), 0, Entry(first=NOW - 4999, passed=NOW)),
        (Entry(first=NOW - 5000), 300, Entry(first=NOW)),
        (Entry(first=NOW + 1), 300, Entry(first=NOW)),
        (Entry(first=5, passed=NOW - 99_999), 0, Entry(first=5, passed=NOW)),
        (Entry(first=5, passed=NOW - 100_000), 300, Entry(first=NOW)),
        (Entry(first=NOW + 9, passed=NOW + 10), 0, Entry(first=NOW + 9, passed=NOW)),
    ],
)
def test_what_a_triplet_has_to_wait(entry: Entry | None, wait: int, then: Entry) -> None:
    assert judge(entry, TERMS, NOW) == (then, wait)


def triplet(
    client: str = "192.0.2.1", sender: str = "a@example.net", recipient: str = "b@example.org"
) -> Triplet:
    settings = ServerSettings(greylist=True, greylist_allow=(ipaddress.ip_network("198.51.100.0/24"),))
    found = GreylistRules(settings).triplet(client, sender, recipient)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("client", "sender", "recipient", "same"),
    [
        ("192.0.2.200", "A@Example.net", "B@example.org", True),
        ("192.0.3.1", "a@example.net", "b@example.org", False),
        ("192.0.2.1", "", "b@example.org", False),
        ("192.0.2.1", "a@example.net", "c@example.org", False),
    ],
)
def test_what_a_triplet_is(client: str, sender: str, recipient: str, same: bool) -> None:
    assert (triplet(client, sender, recipient) == triplet()) is same


def test_a_network_of_ipv6_is_a_64() -> None:
    assert triplet("2001:db8::1") == triplet("2001:db8::ffff:2")
    assert triplet("2001:db8::1") != triplet("2001:db8:0:1::1")


@pytest.mark.parametrize(("client", "on"), [("198.51.100.9", True), ("", True), ("192.0.2.1", False)])
def test_what_needs_not_wait(client: str, on: bool) -> None:
    settings = ServerSettings(greylist=on, greylist_allow=(ipaddress.ip_network("198.51.100.0/24"),))
    assert GreylistRules(settings).triplet(client, "a@b.example", "c@d.example") is None


def test_the_reply_says_how_long() -> None:
    assert str(try_again(1001)).endswith("try again in 2 s")


def test_times_are_those_of_the_settings() -> None:
    settings = ServerSettings(
        greylist=True, greylist_delay=300, greylist_window=5000, greylist_lifetime=100_000
    )
    triplet = GreylistRules(settings).triplet("192.0.2.1", "a@example.net", "b@example.com")
    assert triplet is not None
    assert triplet.terms == TERMS
