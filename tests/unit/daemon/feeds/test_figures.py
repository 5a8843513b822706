"""How far feeds have come, for the metrics."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import FeedsSettings, Settings, WebhookSettings
from mqcd.daemon.feeds.figures import Feeds
from mqcd.disk.durable import Disk
from mqcd.feeds.position import Position, Positions
from mqcd.ops.metrics.metrics import FeedFigures
from tests.fakes.clock import START_MS, FakeClock


def test_a_feed_without_a_position_that_can_be_read_fails(tmp_path: Path) -> None:
    hooks = tuple(WebhookSettings(name=name, url="https://x.test/") for name in ("crm", "new", "torn"))
    settings = Settings()
    feeds = FeedsSettings(webhooks=hooks, rootpath=tmp_path)
    settings = replace(settings, ops=replace(settings.ops, feeds=feeds))
    Positions(Disk(), tmp_path).save("crm", Position(sent=7, gaps=1, since=5))
    (tmp_path / "torn.json").write_text("{")
    os.utime(tmp_path / "torn.json", (START_MS / 1000 - 9,) * 2)
    clock = FakeClock()
    feeds_seen = Feeds(settings, clock)
    clock.advance(1000)
    assert feeds_seen.figures() == {
        "crm": FeedFigures(events=7, gaps=1, failing_since=5),
        "new": FeedFigures(events=0, gaps=0, failing_since=START_MS),
        "torn": FeedFigures(events=0, gaps=0, failing_since=START_MS - 9000),
    }
