"""The hosts file, and what the resolver makes of it."""

import os
from pathlib import Path

import pytest

from mqcd.config.settings import DnsSettings
from mqcd.net.hosts import LOOK_MS, HostsFile, parse
from mqcd.net.resolver import DnsResolver
from tests.fakes.clock import FakeClock

TEXT = """\
127.0.0.1\tlocalhost
# 192.0.2.9 commented.example
192.0.2.1  Mail.example mail # our relay
2001:db8::1 mail.example
192.0.2.1 mail.example
nonsense here.example
192.0.2.7

"""


def test_what_a_hosts_file_says() -> None:
    assert parse(TEXT) == {
        "localhost": ("127.0.0.1",),
        "mail.example": ("192.0.2.1", "2001:db8::1"),
        "mail": ("192.0.2.1",),
    }


def test_a_changed_file_is_reread_a_missing_one_is_empty(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "hosts"
    hosts = HostsFile(clock, path)
    assert hosts.addresses("mail.example") == ()
    path.write_text(TEXT)
    assert hosts.addresses("mail.example") == ()
    clock.advance(LOOK_MS)
    assert hosts.addresses("MAIL.example.") == ("192.0.2.1", "2001:db8::1")
    path.write_text("192.0.2.5 mail.example")
    os.utime(path, (1, 1))
    clock.advance(LOOK_MS)
    assert hosts.addresses("mail.example") == ("192.0.2.5",)
    path.unlink()
    clock.advance(LOOK_MS)
    assert hosts.addresses("mail.example") == ()


@pytest.mark.parametrize("name", ["mail.example", "mail"])
async def test_the_resolver_asks_the_file_before_dns(tmp_path: Path, name: str) -> None:
    clock, path = FakeClock(), tmp_path / "hosts"
    path.write_text(TEXT)
    resolver = DnsResolver(DnsSettings(), clock, hosts=HostsFile(clock, path))
    assert (await resolver.addresses(name))[0] == "192.0.2.1"
