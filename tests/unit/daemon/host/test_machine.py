"""What `mqcd check` finds of a configuration that cannot work on this machine."""

from __future__ import annotations

import pytest

from mqcd.daemon.host.machine import is_of_this_machine, misfits
from tests.unit.config.samples import loaded

OURS = {"127.0.0.1", "198.51.100.7", "::1", "mail.example.com"}


def found(listener: str, deliver: str = "", ops: str = "") -> list[str]:
    text = f"""<mailserver><application><announcehost>mx.example.com</announcehost></application>
      <mta><submit><listeners><listener {listener}/></listeners></submit><deliver>{deliver}</deliver></mta>
      <ops {ops}/></mailserver>"""
    return [path for path, _ in misfits(loaded(text).settings, OURS.__contains__)]


@pytest.mark.parametrize("interface", ["127.0.0.1", "::1", "0.0.0.0", "::", "198.51.100.7"])
def test_an_address_of_this_machine_is_right(interface: str) -> None:
    assert found(f'interface="{interface}"') == []


def test_an_address_of_another_machine_is_wrong() -> None:
    assert found('interface="198.51.100.8"') == ["mta/submit/listeners/listener[1]@interface"]
    assert found('interface="::1"', ops='interface="192.0.2.1"') == ["ops@interface"]
    zones = '<zones><zone name="a" sources="127.0.0.1 | 192.0.2.1"><match sender="a.example"/></zone></zones>'
    assert found('interface="::1"', zones) == ["mta/deliver/zones/zone[1]@sources"]


@pytest.mark.parametrize(
    ("interface", "host", "wrong"),
    [
        ("0.0.0.0", "198.51.100.7", True),
        ("0.0.0.0", "mail.example.com", True),
        ("0.0.0.0", "mx.example.com", True),
        ("127.0.0.1", "198.51.100.7", False),
        ("0.0.0.0", "192.0.2.1", False),
        ("0.0.0.0", "relay.example.net", False),
    ],
)
def test_a_relay_that_is_this_machine_is_wrong(interface: str, host: str, wrong: bool) -> None:
    relay = f'<relays><relay address="{host}:2525"/></relays>'
    path = ["mta/deliver/relays/relay[1]@address"] * wrong
    assert found(f'interface="{interface}" port="2525"', relay) == path
    assert found(f'interface="{interface}" port="2526"', relay) == []


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1", True),
        ("127.0.0.9", True),
        ("localhost", True),
        ("fe80::1", True),
        # RFC 5737, RFC 3849, RFC 6761: nobody has these.
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("nobody.invalid", False),
    ],
)
def test_addresses_of_this_machine_are_known(host: str, ours: bool) -> None:
    assert is_of_this_machine(host) is ours
