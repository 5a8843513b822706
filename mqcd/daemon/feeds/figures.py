"""How far each feed has come, for the server's metrics: read from their small files at each scrape."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from mqcd.config.settings import Settings
from mqcd.core.errors import StoreDamaged
from mqcd.daemon.feeds.terms import names_of
from mqcd.disk.durable import Disk
from mqcd.feeds.position import Positions
from mqcd.ops.metrics.metrics import FeedFigures


class Feeds:
    """The ones of the settings at a start."""

    def __init__(self, settings: Settings) -> None:
        self._names = names_of(settings)
        self._positions = Positions(Disk(), settings.ops.feeds.rootpath)

    def figures(self) -> Mapping[str, FeedFigures]:
        """By name; a feed whose file cannot be read is left out: its own process logs why."""
        found = {}
        for name in self._names:
            with suppress(OSError, StoreDamaged):
                if (at := self._positions.load(name)) is not None:
                    found[name] = FeedFigures(events=at.sent, gaps=at.gaps, failing_since=at.since)
        return found
