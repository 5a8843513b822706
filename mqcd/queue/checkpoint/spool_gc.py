"""Removes old files from the spool's silos that nobody owns: strays, and what a mishap has left.

Setting read: `prune_graceperiod`, the age from which a file counts as old, by the time it was written and,
if it is named after a message, by the message's own. Promise: nothing is removed by guess. A file named
after a message stays while that message has any record, in the journal or in a cluster; while a cluster or
a line of one cannot be read, and while anything lies in quarantine, all of them stay. Directories and
links are left alone. While the clock is in doubt nothing is removed.

An idle server writes nothing, and so removes nothing: this is done at the start, and then with what the
checkpointer does anyway, at most once an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.queue.helper import jobs
from mqcd.queue.helper.sweep import FindStrays, Stray
from mqcd.queue.memory.shard_state import Shard

log = logging.getLogger(__name__)

_EVERY_MS = 3_600_000
_NAMED = 5
"""How many of the removed files a log line names."""


class Pruner:
    """One per shard, driven by its checkpointer: no evacuation happens while it looks."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._next = shard.clock.monotonic()

    async def run(self, urgent: Callable[[], bool]) -> None:
        """Look and remove, if it is time. A failure is told, and left to the next time."""
        now = self._shard.clock.monotonic()
        # The age of a file is what the wall clock says it is.
        if now < self._next or not self._shard.time.look():
            return
        self._next = now + _EVERY_MS
        try:
            await self._prune(urgent)
        except (OSError, StoreUnavailable) as error:
            log.error("old files in the spool could not be looked for: %s", error)

    async def _prune(self, urgent: Callable[[], bool]) -> None:
        shard = self._shard
        # What is on its way to be removed is no stray; it may be waiting for a reader.
        await shard.reaper.settled(urgent)
        strays = cast(
            "list[Stray]",
            await shard.helper.run(
                FindStrays(
                    queue_root=shard.queue_root,
                    silos=shard.silos,
                    before=shard.clock.now() - shard.options.settings.prune_graceperiod,
                )
            ),
        )
        wanted = frozenset(stray.spid for stray in strays if stray.spid is not None) - shard.in_journal()
        owned = await self._recorded(wanted) if wanted else frozenset()
        gone = [each.path for each in strays if each.spid is None or each.spid in wanted - owned]
        for path in gone:
            shard.reaper.remove(path)
        if gone:
            named = ", ".join(str(path.relative_to(shard.spool_root)) for path in gone[:_NAMED])
            log.warning("%d old files in the spool belong to nobody and are removed: %s", len(gone), named)

    async def _recorded(self, spids: frozenset[int]) -> frozenset[int]:
        """Those of the messages that have a record after all."""
        shard = self._shard
        task = jobs.Resolve(shard.queue_root, spids, shard.cluster_index.left())
        found = cast("frozenset[int]", await shard.helper.run(task))
        # Records that were taken from a cluster while it was scanned are entries now.
        return found | shard.in_journal()
