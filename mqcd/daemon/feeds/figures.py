"""How far each feed has come, for the server's metrics: read from their small files at each scrape."""

from __future__ import annotations

from collections.abc import Mapping

from mqcd.config.settings import Settings
from mqcd.core.ports import Clock
from mqcd.daemon.feeds.terms import names_of
from mqcd.disk.durable import Disk
from mqcd.feeds.position import Position, Positions
from mqcd.ops.metrics.metrics import FeedFigures


class Feeds:
    """The ones of the settings at a start."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._names = names_of(settings)
        self._positions = Positions(Disk(), settings.ops.feeds.rootpath)
        self._clock = clock
        self._begun = clock.now()

    def figures(self) -> Mapping[str, FeedFigures]:
        """By name; a feed whose file is not there, or cannot be read, fails since the start."""
        return {name: self._figures(name) for name in self._names}

    def _figures(self, name: str) -> FeedFigures:
        try:
            at = self._positions.seen(name, self._clock.now())
        except OSError:
            # The process of the feeds logs why.
            at = None
        at = at or Position(since=self._begun)
        return FeedFigures(events=at.sent, gaps=at.gaps, failing_since=at.since)
