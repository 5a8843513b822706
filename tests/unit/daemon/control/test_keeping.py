"""Settings as rows, and the level of the log for a time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from mqcd.config.load import load_text
from mqcd.config.settings import LogLevel, LogSettings
from mqcd.daemon.control.keeping import Keeping
from mqcd.ops.http.server import Request
from tests.fakes.clock import FakeClock

CONF = b"""<mailserver>
  <mta><deliver><relays><relay address="192.0.2.1">
    <auth enabled="Y"><username>me</username><password>secret</password></auth>
  </relay></relays>
  <zones><zone name="bulk" rate="5/s"/></zones></deliver></mta>
  <ops><log level="warning"/></ops>
</mailserver>"""
ASKED = Request(method="POST", path="/v1/loglevel", uid=7)


class Rig:
    """A server's settings and its log."""

    def __init__(self) -> None:
        self.loaded = load_text(
            CONF, name="mqcd.xml", conf=Path("/etc/mqcd"), var=Path("/var/mqcd"), hostname="mx.example"
        )
        self.settings = self.loaded.settings
        self.clock = FakeClock()
        self.levels: list[LogLevel] = []
        self.events: list[dict[str, str | int]] = []
        self.keeping = Keeping(lambda: self.settings, self._reload, self.clock, self._log_event)
        self.keeping.lines = self.loaded.lines

    def _reload(self, settings: LogSettings) -> None:
        self.levels.append(settings.level)

    def _log_event(self, event: str, **fields: str | int) -> None:
        self.events.append({"event": event, **fields})


def test_settings_say_where_they_are_set_and_no_secret() -> None:
    rig = Rig()
    rows = {str(row["path"]): row for row in rig.keeping.settings(ASKED, {})}
    zone = rows["mta/deliver/zones/zone[1]@rate"]
    assert (zone["value"], zone["default"], zone["line"]) == ("5/s", "", 5)
    assert (rows["ops@port"]["value"], rows["ops@port"]["line"]) == ("9125", None)
    assert "secret" not in str(rows)
    assert all(row["gloss"] for row in rows.values())


async def test_a_level_holds_for_its_time() -> None:
    rig = Rig()
    shown = rig.keeping.set_level(ASKED, {"level": "debug", "for": 60_000})
    assert shown["level"] == "debug"
    assert shown["until"] is not None
    await asyncio.sleep(0)
    rig.clock.advance(60_000)
    while len(rig.levels) < 2:
        await asyncio.sleep(0)
    assert rig.levels == [LogLevel.DEBUG, LogLevel.WARNING]
    assert rig.keeping.level(ASKED, {}) == {"level": "warning", "until": None}
    assert rig.events == [{"event": "loglevel", "threshold": "debug", "by": "uid:7", "for_ms": 60_000}]


async def test_a_reload_sets_the_configured_level() -> None:
    rig = Rig()
    rig.keeping.set_level(ASKED, {"level": "error"})
    assert rig.keeping.level(ASKED, {})["level"] == "error"
    rig.settings = replace(rig.settings)
    assert rig.keeping.level(ASKED, {})["level"] == "warning"
