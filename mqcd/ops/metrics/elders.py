"""Destinations with old mail that waits for its next attempt, as far as attempts show.

Between attempts mail rests on disk, and to ask the disk for each destination's oldest would be a scan. But
waiting mail was deferred before, and the oldest waits the longest: remembering for each destination the
oldest recipient that it put off costs one look per verdict and nothing else. So a shown age belongs to a
recipient that waits. An older one may exist that this process has not tried yet (after a start), or not since
the previous oldest ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST = 1000
"""Destinations that are remembered; of more, those whose mail is oldest."""
SLACK_MS = 24 * 3_600_000
"""Time after its due time for which a recipient is still believed to wait, for room or for its destination.
It is bounded, because the recipient may have ended unobserved by another route."""

Key = tuple[int, int]
"""(SPID, QID)."""


class _Elder(NamedTuple):
    received: int
    key: Key
    until: int


class Elders:
    """The oldest recipient put off by each destination. Times are wall time, ms."""

    def __init__(self) -> None:
        self._known: dict[str, _Elder] = {}

    def put_off(self, destination: str, key: Key, received: int, due: int) -> None:
        """A recipient waits for another attempt at `due`."""
        known = self._known.get(destination)
        if known is not None and known.received < received:
            return
        self._known[destination] = _Elder(received, key, due + SLACK_MS)
        if len(self._known) > 2 * MOST:
            # By halves, so that sorting costs little per verdict.
            oldest = sorted(self._known.items(), key=lambda item: item[1].received)
            self._known = dict(oldest[:MOST])

    def ended(self, destination: str, key: Key) -> None:
        """A recipient has been delivered or has failed."""
        known = self._known.get(destination)
        if known is not None and known.key == key:
            del self._known[destination]

    def oldest(self, now: int) -> Mapping[str, int]:
        """By destination, when the oldest recipient that is known to wait was accepted."""
        self._known = {name: each for name, each in self._known.items() if each.until > now}
        return {name: each.received for name, each in self._known.items()}
