"""Rules of a door: who may send as whom, and which network has which rules."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from mqcd.config.settings import ServerSettings
from mqcd.submit.checks.listed import parse_blacklist
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.relay import relay_policy
from mqcd.submit.policy.rules import Gate, Rulebook, Rules


def rules(**settings: Any) -> Rules:
    made = ServerSettings(**settings)
    return Rules(made, relay_policy(made, {}), Gate())


DENY = ("example.org", ".example.net", "bad@example.com")


@pytest.mark.parametrize(
    ("deny", "permit", "sender", "taken"),
    [
        ((), (), "any@example.org", True),
        (DENY, (), "any@example.org", False),
        (DENY, (), "any@example.net", True),
        (DENY, (), "any@sub.example.net", False),
        (DENY, (), "bad@example.com", False),
        (DENY, (), "good@example.com", True),
        (DENY, (), "", True),
        (("<>",), (), "", False),
        ((), ("example.org",), "any@example.org", True),
        ((), ("example.org",), "any@example.net", False),
        ((), ("example.org",), "", True),
        (DENY, ("good@example.org",), "good@example.org", True),
        (DENY, ("good@example.org",), "any@example.org", False),
        (DENY, ("example.com",), "bad@example.com", False),
        (DENY, ("example.com",), "good@example.com", True),
        (("example.org",), ("example.org",), "any@example.org", False),
    ],
)
def test_senders(deny: tuple[str, ...], permit: tuple[str, ...], sender: str, taken: bool) -> None:
    denied = rules(sender_deny=deny, sender_permit=permit).sender_denied("", sender)
    assert (denied is None) is taken
    assert denied is None or denied[0] is Reason.SENDER


def test_a_listed_sender_is_refused_whatever_is_permitted() -> None:
    ours = rules(sender_permit=("example.org",))
    ours.blacklist = parse_blacklist("a@example.org", "f")
    denied = ours.sender_denied("", "a@example.org")
    assert denied is not None
    assert denied[0] is Reason.BLACKLIST


def test_trusted_clients_may_have_any_name_and_own_domains_need_no_dns() -> None:
    ours = rules(
        relay_clients=(ipaddress.ip_network("192.0.2.0/24"),),
        relay_domains=("example.org",),
        validate_helo=True,
        validate_recip=True,
    )
    assert ours.check_helo("a b", "192.0.2.1") == ()
    assert ours.check_helo("a b", "198.51.100.1") != ()
    assert ours.check_recipient("a@example.org", "192.0.2.1") == ()
    assert ours.check_recipient("a@example.net", "192.0.2.1") != ()


@pytest.mark.parametrize(
    ("client", "limit"),
    [
        ("203.0.113.9", 1),
        ("192.0.2.200", 2),
        ("192.0.2.7", 3),
        ("2001:db8::1", 4),
        ("198.51.100.1", 5),
        ("198.51.100.2", 1),
        ("", 1),
    ],
)
def test_the_smallest_network_counts(client: str, limit: int) -> None:
    networks = {
        ipaddress.ip_network("192.0.2.0/24"): 2,
        ipaddress.ip_network("192.0.2.0/28"): 3,
        ipaddress.ip_network("2001:db8::/32"): 4,
        "web.example": 5,
    }
    common = rules(maxrecips=1)
    book = Rulebook(common, [((ip,), rules(maxrecips=limit)) for ip, limit in networks.items()])
    book.resolve(common.policy, {"web.example": ["198.51.100.1"]})
    assert book.of(client).settings.maxrecips == limit


def test_of_equal_networks_the_first_counts() -> None:
    network = ipaddress.ip_network("192.0.2.0/24")
    book = Rulebook(rules(), [((network,), rules(maxrecips=2)), ((network,), rules(maxrecips=3))])
    assert book.of("192.0.2.1").settings.maxrecips == 2
