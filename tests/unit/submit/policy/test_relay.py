"""Who may send what to whom."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

import pytest

from mqcd.config.settings import HostPattern, ServerSettings
from mqcd.core.address import parse_path
from mqcd.submit.checks.listed import NetworkList
from mqcd.submit.esmtp.refusal import Reason
from mqcd.submit.policy.relay import RELAY_DENIED, RelayPolicy, host_names, own_domain, relay_policy

POLICY = RelayPolicy(
    networks=NetworkList([ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/32")]),
    domains=frozenset({"example.com", "xn--bcher-kva.example"}),
    own_domain="example.org",
)

ANYBODY = [
    ("<user@example.com>", True),
    ("<user@EXAMPLE.com.>", True),
    ("<user@bücher.example>", True),
    ("<user@xn--bcher-kva.example>", True),
    ("<postmaster>", True),
    ("<PostMaster>", True),
    ("<@relay.example:user@example.com>", True),
    ("<user@sub.example.com>", False),
    ("<user@example.com.evil.example>", False),
    ("<user@notexample.com>", False),
    ("<user@evil.example>", False),
    ("<user@[127.0.0.1]>", False),
    ("<user@[IPv6:::1]>", False),
    ("<@example.com:user@evil.example>", False),
    ("<@example.com,@mx.example.org:user@evil.example>", False),
    ("<user%evil.example@example.com>", False),
    ("<user%evil.example@evil.example>", False),
    ('<"user@evil.example"@example.com>', False),
    ('<"user%evil.example"@example.com>', False),
    ("<evil.example!user@example.com>", False),
    ("<postmaster@evil.example>", False),
]


@pytest.mark.parametrize(("path", "taken"), ANYBODY)
def test_what_anybody_may_send_to(path: str, taken: bool) -> None:
    recipient, _ = parse_path(path)
    assert POLICY.refusal(recipient, trusted=False) == (None if taken else RELAY_DENIED)


@pytest.mark.parametrize("path", [path for path, _ in ANYBODY])
def test_a_listed_client_may_send_anywhere(path: str) -> None:
    recipient, _ = parse_path(path)
    assert POLICY.refusal(recipient, trusted=True) is None


@pytest.mark.parametrize(
    ("client", "trusted"),
    [
        ("192.0.2.77", True),
        ("192.0.3.1", False),
        ("2001:db8::5", True),
        ("2001:db9::5", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("", False),
        ("not an address", False),
    ],
)
def test_trusted_clients(client: str, trusted: bool) -> None:
    assert POLICY.trusts(client) is trusted


def test_nobody_relays_by_default() -> None:
    policy = relay_policy(ServerSettings(), {})
    assert not policy.trusts("127.0.0.1")
    assert policy.refusal("user@example.com", trusted=False) == RELAY_DENIED


@pytest.mark.parametrize(
    ("pattern", "client", "trusted"),
    [
        ("localhost", "127.0.0.1", True),
        ("localhost", "::1", True),
        ("web.example.org", "198.51.100.7", True),
        ("web.example.org", "2001:db8:1::7", True),
        ("web.example.org", "198.51.100.8", False),
        ("web.example.org/24", "198.51.100.8", True),
        ("web.example.org/24", "2001:db8:1::8", False),
        ("web.example.org/64", "2001:db8:1::8", True),
        ("unknown.example.org", "198.51.100.7", False),
        (ipaddress.ip_network("198.51.100.8"), "198.51.100.8", True),
    ],
)
def test_patterns_of_relay_clients(pattern: HostPattern, client: str, trusted: bool) -> None:
    resolved = {"web.example.org": ["198.51.100.7", "2001:db8:1::7"]}
    assert relay_policy(ServerSettings(relay_clients=(pattern,)), resolved).trusts(client) is trusted


def test_names_to_look_up() -> None:
    patterns = ("b.example", "localhost", ipaddress.ip_network("192.0.2.1"), "a.example/24", "b.example")
    assert host_names(patterns) == ["a.example", "b.example"]


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("mx.example.org", "example.org"),
        ("example.org", "example.org"),
        ("host", "host"),
        ("", "localhost"),
    ],
)
def test_own_domain(host: str, domain: str) -> None:
    assert own_domain(host) == domain


@pytest.mark.parametrize(
    ("path", "whole"), [("", ""), ("postmaster", "postmaster@example.org"), ("a@b.example", "a@b.example")]
)
def test_only_a_bare_name_is_completed(path: str, whole: str) -> None:
    assert POLICY.complete(path) == whole


def test_every_reason_is_in_the_document() -> None:
    text = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
    table = text.split("\n## Refusals\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall("`([a-z-]+)`", " ".join(cells))) == sorted(Reason)
