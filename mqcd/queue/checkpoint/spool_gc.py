"""Removes the files in the spool's silos that no unfinished recipient needs, by mark-and-sweep.

Reference counts remove most files when their last recipient ends (`mqcd.queue.spool.refcounts`); the sweep
finds the others: of messages that had no count, of messages that a crash cut off on their way in, and files
whose removal failed or was undone by a power cut. It runs at the start, then once an hour; while messages
without a count have lost recipients (the batch) also as soon as the disk is low, the batch has grown to
`FULL`, or there is no cluster to read, but such sweeps take at most a tenth of the time. An idle server
does nothing.

Promise: a file named after a message stays while that message has a record or is being accepted; while a
cluster or a line of one cannot be read, or anything lies in quarantine, all of them stay. A file that is
not the queue's own is removed when it is older than `prune_graceperiod`, by the time it was written and, if
it is named after a message, by the message's own; never while the clock is in doubt. Readers that hold a
pin keep all files.

Settings read: `prune_graceperiod`; `minfree` and `mininodes`: the disk is low at twice of either.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.disk.durable import TEMP_SUFFIX
from mqcd.queue.format import filenames
from mqcd.queue.helper.sweep import FindOrphans, Orphan
from mqcd.queue.memory.shard_state import Shard
from mqcd.queue.memory.slices import slices

log = logging.getLogger(__name__)

EVERY_MS = 3_600_000
REST = 9
"""Time without a sweep before its hour, in multiples of what the last one took."""
FULL = 50_000
"""Messages in a batch from which memory counts for more than the disk's time."""
_LOOK_MS = 10_000
"""How often, while there is a batch, it is checked whether it must be swept for at once."""
_NAMED = 5
"""How many of the removed files a log line names."""


class SpoolGc:
    """One per shard, driven by its checkpointer: no evacuation happens while it sweeps."""

    def __init__(self, shard: Shard, full: int = FULL) -> None:
        self._shard = shard
        self._full = full
        self._hourly = self._rested = shard.clock.monotonic()
        self._swept = False

    def wait(self) -> int | None:
        """In how many ms to call `run` again; None when there is no batch."""
        if not self._shard.references.batch:
            return None
        return max(self._rested - self._shard.clock.monotonic(), _LOOK_MS)

    async def run(self) -> None:
        """Sweep if it is time; see the module's text."""
        now = self._shard.clock.monotonic()
        if now >= self._hourly or (self._shard.references.batch and now >= self._rested and self._presses()):
            await self.sweep()

    async def finish(self) -> None:
        """At the stop: sweep where the start had no time for it, or where no cluster has to be read.

        Files that are not the queue's own stay: a stop is no time to look for them.
        """
        if not self._swept or self._no_clusters():
            await self.sweep(foreign=False)

    def _presses(self) -> bool:
        return len(self._shard.references.batch) >= self._full or self._no_clusters() or self._disk_is_low()

    def _no_clusters(self) -> bool:
        return not self._shard.cluster_index.left()

    def _disk_is_low(self) -> bool:
        settings = self._shard.options.settings
        try:
            octets, inodes = self._shard.disk.free(self._shard.spool_root)
        except OSError:
            # The door is closed for that already, and a sweep would not help.
            return False
        # A file system without a fixed number of inodes reports 0 of them.
        return octets < 2 * settings.minfree or 0 < inodes < 2 * settings.mininodes

    async def sweep(self, *, foreign: bool = True) -> None:
        """Sweep now. A failure is logged, and left to the next time."""
        shard = self._shard
        begun = shard.clock.monotonic()
        batch, shard.references.batch = shard.references.batch, set()
        try:
            await self._mark_and_sweep(foreign and shard.time.look())
            self._swept = True
        except (OSError, StoreUnavailable) as error:
            shard.references.batch |= batch
            log.error("the spool could not be swept, it is tried again: %s", error)
        finally:
            now = shard.clock.monotonic()
            self._hourly, self._rested = now + EVERY_MS, now + REST * (now - begun)
            shard.figures.reference_scans += 1
            shard.figures.reference_scan_ms += now - begun

    async def _mark_and_sweep(self, foreign: bool) -> None:
        shard = self._shard
        task = FindOrphans(
            queue_root=shard.queue_root,
            silos=shard.silos,
            clusters=shard.cluster_index.left(),
            newest=shard.spids.last,
            # The age of a file is what the wall clock says.
            before=shard.clock.now() - shard.options.settings.prune_graceperiod if foreign else None,
        )
        found = cast("list[Orphan]", await shard.helper.run(task))
        self._remove(await self._without_owner(found))

    async def _without_owner(self, found: Sequence[Orphan]) -> list[Orphan]:
        """The orphans that the journal does not need either.

        The helper has marked every record that was in a cluster when it began, and records return to clusters
        by evacuation alone. So all others are in memory now: those of messages that were being accepted when
        the file was listed are so still, or have entries. Entries move to the newest segment only, which is
        looked at last.
        """
        shard = self._shard
        own = {orphan.file for orphan in found if orphan.file is not None}
        if not own:
            return list(found)
        arriving = {file for file in own if filenames.spid_of(file) in shard.entries.arriving}
        needed = set(arriving)
        number = 0
        while segment := next((each for each in shard.ring if each.number > number), None):
            number = segment.number
            async for part in slices(tuple(segment.entries.values())):
                needed.update(entry.file for entry in part if entry.file in own)
        return [
            orphan
            for orphan in found
            if orphan.file not in (arriving if orphan.path.name.endswith(TEMP_SUFFIX) else needed)
        ]

    def _remove(self, orphans: Sequence[Orphan]) -> None:
        for orphan in orphans:
            self._shard.deleter.remove(orphan.path)
        foreign = [orphan.path for orphan in orphans if orphan.file is None]
        if len(orphans) > len(foreign):
            log.info("%d files of ended messages are removed from the spool", len(orphans) - len(foreign))
        if foreign:
            named = ", ".join(str(path.relative_to(self._shard.spool_root)) for path in foreign[:_NAMED])
            log.warning(
                "%d old files in the spool belong to no message and are removed: %s", len(foreign), named
            )
