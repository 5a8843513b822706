"""Recipients whose outcome was unknown after several crashes: delivery of them may cause the crashes.

Promise: a recipient that `SUSPECT` crashes or more left with an unknown outcome is known from soon after each
start until an outcome is recorded; at most `MOST` are. The records keep the count, so a restart forgets
nothing: one scan after the start finds them, and a store without such mail skips it. Delivery does not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mqcd.core.errors import MqcdError
from mqcd.core.model import Recipient, Settlement
from mqcd.core.ports import Clock, QueueStore
from mqcd.core.selecting.selection import Selection

SUSPECT = 3
"""From so many on the next attempt waits for the longest delay, see `RetrySchedule.after_unknown`."""
MOST = 1000
AGAIN_MS = 60_000
"""Pause before another search where the queue could not be read."""

_log = logging.getLogger("mqcd.deliver")


@dataclass(eq=False, repr=False)
class Suspects:
    """The suspects of one store."""

    _store: QueueStore
    _clock: Clock
    _found: dict[tuple[int, int], Recipient] = field(default_factory=dict)
    _settled: set[tuple[int, int]] | None = field(default_factory=set)
    """Recipients whose outcome was recorded during the search; None = the search has ended."""

    def __iter__(self) -> Iterator[Recipient]:
        return iter(self._found.values())

    async def look(self) -> None:
        """Find them. Returns when that is done."""
        while True:
            try:
                await self._scan()
            except (OSError, MqcdError) as error:
                _log.info("search for recipients of unknown outcome failed, next try later: %s", error)
                await self._clock.sleep(AGAIN_MS)
            else:
                self._settled = None
                return

    async def _scan(self) -> None:
        async for recipient in self._store.scan(Selection(unknowns=SUSPECT, limit=MOST)):
            if self._settled is not None and recipient.key not in self._settled:
                self._found[recipient.key] = recipient

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Their outcome is known: remove them."""
        if self._settled is None and not self._found:
            return
        for settlement in settlements:
            recipient = settlement.recipient
            if recipient.unknowns >= SUSPECT:
                self._found.pop(recipient.key, None)
                if self._settled is not None:
                    self._settled.add(recipient.key)
