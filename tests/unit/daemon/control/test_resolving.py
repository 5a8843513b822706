"""Selections by site and zone, as delivery routes mail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from mqcd.cli import main
from mqcd.config.settings import HostPort, RelaySettings
from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.resolving import resolved, router_of, sites_of
from mqcd.net.clock import SystemClock
from tests.fakes.clock import FakeClock
from tests.fakes.resolver import FakeResolver
from tests.unit.daemon.support import running, settings_of, write_conf
from tests.unit.queue.support import recipient

ZONES = (
    '<zones><zone name="bulk"><match domain="slow.example"/></zone>'
    '<zone name="rest"><match listener="smtp"/></zone></zones>'
)
NOT_NOW = "*=450 4.2.1 not now"


async def test_lane_keys_have_the_sites_that_delivery_schedules_by(tmp_path: Path) -> None:
    settings = settings_of(write_conf(tmp_path))
    relay = RelaySettings(address=HostPort(host="192.0.2.1", port=25), destdomains=("ours.example",))
    settings = replace(settings, deliver=replace(settings.deliver, relays=(relay,)))
    resolver = FakeResolver({"a.example": [(10, "mx.p.example")], "b.example": [(10, "mx.p.example")]})
    router = router_of(settings, resolver, FakeClock())
    keys = ["a.example", "b.example", "ours.example", "gone.example", "[192.0.2.9]", "host.example:26"]
    assert await sites_of(router, keys) == {
        "a.example": "mx.p.example",
        "b.example": "mx.p.example",
        "ours.example": "192.0.2.1:25",
        "gone.example": "",
        "[192.0.2.9]": "[192.0.2.9]",
        "host.example:26": "host.example:26",
    }

    async def asked() -> Collection[str]:
        return keys

    def selected(text: str) -> Selection:
        return Selection(where=parse_where(text, 0, live=True))

    found = await resolved(selected("site in (mx.p.example, host.example:26)"), router, asked)
    assert found.unrouted == 1
    assert found.selection.matches(recipient(address="r@A.example"))
    assert not found.selection.matches(recipient(address="r@a.example", route="192.0.2.1:25"))
    assert found.selection.matches(recipient(address="r@else.example", route="host.example:26"))
    with pytest.raises(DecodeError, match="no zone 'bulk'"):
        await resolved(selected("zone = bulk"), router, asked)


async def test_site_and_zone_select_the_same_on_a_server_and_in_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, rules=[NOT_NOW], deliver=ZONES) as house:
        await house.send("a@slow.example", "b@other.example")
        while house.observer.count(Verb.DEFERRED) < 2:
            house.observer.news.clear()
            await house.observer.news.wait()
        site = f"127.0.0.1:{house.sink.port}"
        for condition, count in (
            ("zone = bulk", 1),
            ("zone = ''", 0),
            (f"site = '{site}' and zone = rest", 1),
        ):
            status, body = await asyncio.to_thread(
                house.control.get, f"/v1/count?where={quote(condition)}", 30
            )
            assert (status, json.loads(body)["recipients"]) == (200, count), condition
            selection = {"where": condition, "now": SystemClock().now()}
            for action in ("hold", "retry"):
                status, body = await asyncio.to_thread(
                    house.control.post,
                    "/v1/batch",
                    {"action": action, "selection": selection, "dry_run": True},
                    30,
                )
                assert (status, json.loads(body)["matched"]) == (200, count), condition
            capfd.readouterr()
            ls = ["-c", str(house.conf), "queue", "ls", "--json", "--where", condition]
            assert await asyncio.to_thread(main, ls) == 0
            assert len(capfd.readouterr().out.splitlines()) == count, condition
        hold = [
            "-c",
            str(house.conf),
            "queue",
            "hold",
            "--json",
            "--where",
            f"zone = bulk and site = '{site}'",
        ]
        assert await asyncio.to_thread(main, hold) == 0
        done = json.loads(capfd.readouterr().out)
        assert house.server.store.stats()[Area.HELD].recipients == 1
        status, body = await house.get(f"/v1/batches?id={done['batch']}")
        assert json.loads(body)["selection"]["where"] == f"zone = bulk and site = {site}"
        hold[-1] = "zone = nosuch"
        assert await asyncio.to_thread(main, hold) == 1
        assert "no zone 'nosuch'; configured are: bulk, rest" in capfd.readouterr().err
