"""When old event files are removed, so that nothing else waits or fails for it.

At the start, when the limits change, and then with the seals of a working server: once an hour, or sooner
when so much has been exported that `maxsize` may be passed. While the clock is in doubt nothing goes for
its age. An idle server writes nothing: what is too old waits for the next mail.
"""

from __future__ import annotations

import logging
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import describe
from mqcd.eventlog.retention import Retain, Retained
from mqcd.queue.memory.shard_state import Shard

log = logging.getLogger(__name__)

_EVERY_MS = 3_600_000
_SHARE = 20
"""Looked for after exports of one part in so many of `maxsize`."""


class Retainer:
    """One per shard, driven by its checkpointer."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._next = shard.clock.monotonic()
        self._exported = 0
        self._limits = shard.options.retention
        """What was gone by last."""

    def exported(self, octets: int) -> None:
        """A segment of so many octets has been exported; its event file is hardly larger."""
        self._exported += octets

    async def run(self) -> None:
        """Remove old files, if it is time. A failure is logged, and left to the next time."""
        shard, limits = self._shard, self._shard.options.retention
        now = shard.clock.monotonic()
        crowded = limits.maxsize and self._exported * _SHARE > limits.maxsize
        early = now < self._next and not crowded and limits == self._limits
        self._limits = limits
        if early or not (limits.maxage or limits.maxsize):
            return
        self._next, self._exported = now + _EVERY_MS, 0
        aged = limits.maxage and shard.time.look()
        task = Retain(
            directory=shard.options.events,
            source=shard.options.source,
            first_live=shard.ring.first_live,
            before=shard.clock.now() - limits.maxage if aged else 0,
            maxsize=limits.maxsize,
        )
        try:
            done = cast("Retained", await shard.helper.run(task))
        except OSError as error:
            log.error("old event files could not be looked for: %s", describe(error))
        except StoreUnavailable as error:
            log.error("old event files could not be looked for: %s", error)
        else:
            self._log(done)

    def _log(self, done: Retained) -> None:
        self._shard.figures.removed_event_files += done.removed
        if done.removed:
            log.info("%d event files with %d octets were too old or too many", done.removed, done.octets)
        if done.failures:
            text = "%d event files that are too old or too many could not be removed: %s"
            log.error(text, len(done.failures), done.failures[0])
