"""How far feeds have come, for the metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mqcd.config.settings import FeedsSettings, Settings, WebhookSettings
from mqcd.daemon.feeds.figures import Feeds
from mqcd.disk.durable import Disk
from mqcd.feeds.position import Position, Positions
from mqcd.ops.metrics.metrics import FeedFigures


def test_a_feed_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    hooks = tuple(WebhookSettings(name=name, url="https://x.test/") for name in ("crm", "new", "torn"))
    settings = Settings()
    feeds = FeedsSettings(webhooks=hooks, rootpath=tmp_path)
    settings = replace(settings, ops=replace(settings.ops, feeds=feeds))
    Positions(Disk(), tmp_path).save("crm", Position(sent=7, gaps=1, since=5))
    (tmp_path / "torn.json").write_text("{")
    assert Feeds(settings).figures() == {"crm": FeedFigures(events=7, gaps=1, failing_since=5)}
