"""Finds which messages of several recipients have none left, and lets their spool files go.

One scan of all clusters answers for a whole batch (see `references`). Promise: the scans take at most one
percent of the time, so a large backlog is not read over and over for a few files; they come at once when
there is no cluster to read, when the disk is low, or when the batch has grown to `FULL`. A batch that waits
is in the MANIFEST before the frames go that tell whose recipients have ended: a crash forgets none of it.

Settings read: `minfree` and `mininodes`; the disk is low at twice of either.
"""

from __future__ import annotations

from typing import cast

from mqcd.core.errors import StoreUnavailable
from mqcd.core.spid import is_several
from mqcd.queue.helper import jobs
from mqcd.queue.manifest.log import Edit
from mqcd.queue.memory.shard_state import Shard

REST = 99
"""Time without a scan after one, in multiples of what it took."""
FULL = 50_000
"""Messages in a batch from which memory counts for more than the disk's time."""
_LOOK_MS = 10_000
"""How often it is seen whether the disk has become low."""


class Counting:
    """One per shard, driven by its checkpointer: no evacuation happens while it scans."""

    def __init__(self, shard: Shard, full: int = FULL) -> None:
        self._shard = shard
        self._full = full
        self._not_before = shard.clock.monotonic()

    def wait(self) -> int | None:
        """In how many ms to ask again whether a scan may be made; None when there is nothing to find out."""
        if not self._shard.references.batch:
            return None
        return max(0, min(self._not_before - self._shard.clock.monotonic(), _LOOK_MS))

    async def run(self) -> None:
        """Scan, if there is something to find out and it may be done. Raises OSError, StoreUnavailable."""
        shard = self._shard
        batch = shard.references.batch
        if batch and (self._rested() or self._costs_nothing() or self._must()):
            begun = shard.clock.monotonic()
            try:
                await self._scan()
            finally:
                now = shard.clock.monotonic()
                self._not_before = now + REST * (now - begun)
                shard.figures.reference_scans += 1
                shard.figures.reference_scan_ms += now - begun

    def _rested(self) -> bool:
        return self._shard.clock.monotonic() >= self._not_before

    def _costs_nothing(self) -> bool:
        """Whether there is no cluster to read: then what is not in the journal is nowhere."""
        return not self._shard.cluster_index.left()

    def _must(self) -> bool:
        return len(self._shard.references.batch) >= self._full or self._disk_is_low()

    def _disk_is_low(self) -> bool:
        settings = self._shard.options.settings
        try:
            octets, inodes = self._shard.disk.free(self._shard.spool_root)
        except OSError:
            # The door is closed for that already, and a scan would find out no more.
            return False
        # A file system without a fixed number of inodes tells 0 of them.
        return octets < 2 * settings.minfree or 0 < inodes < 2 * settings.mininodes

    async def _scan(self) -> None:
        shard = self._shard
        batch, shard.references.batch = shard.references.batch, set()
        batch -= shard.in_journal()
        task = jobs.Resolve(shard.queue_root, frozenset(batch), shard.cluster_index.left())
        try:
            found = cast("frozenset[int]", await shard.helper.run(task))
        except (OSError, StoreUnavailable):
            shard.references.batch |= batch
            raise
        # Records that were taken from a cluster while it was scanned are entries now.
        found |= shard.in_journal()
        for spid in batch - found:
            if is_several(spid):
                shard.reaper.remove(shard.silos.path(spid))

    def to_record(self) -> Edit:
        """What the next edit has to say of the batch."""
        known, batch = self._shard.manifest.state.doubtful, self._shard.references.batch
        if known <= batch:
            return Edit(doubtful=tuple(batch - known))
        return Edit(counted=1, doubtful=tuple(batch))
