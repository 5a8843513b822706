"""The sites of domains, as delivery routes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import HostPort, RelaySettings
from mqcd.daemon.control.sites import sites_of
from tests.fakes.clock import FakeClock
from tests.fakes.resolver import FakeResolver
from tests.unit.daemon.support import settings_of, write_conf


async def test_domains_have_the_sites_that_delivery_schedules_by(tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path))
    relay = RelaySettings(address=HostPort(host="192.0.2.1", port=25), destdomains=("ours.example",))
    settings = replace(settings, deliver=replace(settings.deliver, relays=(relay,)))
    resolver = FakeResolver({"a.example": [(10, "mx.p.example")], "b.example": [(10, "mx.p.example")]})
    domains = ["a.example", "b.example", "ours.example", "gone.example", "[192.0.2.9]"]
    assert await sites_of(settings, resolver, FakeClock(), domains) == {
        "a.example": "mx.p.example",
        "b.example": "mx.p.example",
        "ours.example": "192.0.2.1:25",
        "gone.example": "",
        "[192.0.2.9]": "[192.0.2.9]",
    }
