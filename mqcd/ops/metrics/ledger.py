"""Checks by two sets of counts that every recipient is accounted for.

One are the counts of events, made at each transition; the other is what the store says it holds. The
store keeps its figures where records begin, move and end, and knows nothing of ours. From any moment
on, what was accepted is what has ended and what has been added to the queue. So the difference stays what it
was: a recipient that is lost without an event, or counted twice, changes it for good.

Counts begin with the process, the queue does not; so the books are opened at the start, when the queue has
been read. What was lost before, or by the crash itself, is not seen here but by `mqcd fsck`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mqcd.core.model import Area, AreaStats
from mqcd.ops.metrics.meters import Meters


class HasStats(Protocol):
    """The part of a queue store that the ledger reads."""

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds."""


class Ledger:
    """The books of one process."""

    def __init__(self, meters: Meters, store: HasStats) -> None:
        self._meters = meters
        self._store = store
        self._opened: int | None = None

    def open(self, quarantined: int) -> None:
        """The queue has been read: from now on nothing may come or go without an event.

        `quarantined`: lines quarantined since the start; each later one was a recipient.
        """
        self._opened = self._difference(quarantined)

    def imbalance(self, quarantined: int) -> int | None:
        """Recipients that are missing in the queue, below 0 too many; None before the books are open."""
        return None if self._opened is None else self._difference(quarantined) - self._opened

    def _difference(self, quarantined: int) -> int:
        """What events say the queue has gained, less what it holds.

        A bounce stays in the queue until its report is sent; one of a null sender gets none.
        """
        meters = self._meters
        ended = (
            meters.delivered_recipients
            + meters.silent_ends
            + meters.reported_recipients
            + sum(meters.discarded_bounces.counts.values())
            + meters.purged_recipients
            + quarantined
        )
        held = sum(area.recipients for area in self._store.stats().values())
        return meters.accepted_recipients - ended - held
