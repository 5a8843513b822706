"""The queue for oneself: what may change it as a whole, while no server runs.

Whatever the last run left is first recovered, exported and evacuated by the engine itself, so that all
records lie in clusters and all contents in the spool. A change then takes the number of a segment that
never was, as if that segment had just been evacuated: its clusters, its events and its one MANIFEST edit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from mqcd.core.errors import StoreBusy, StoreDamaged
from mqcd.core.model import Area
from mqcd.core.ports import Clock, Observer
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.queue.clusters import file as cluster
from mqcd.queue.disk.owner_lock import take_lock
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.log import Manifest
from mqcd.queue.manifest.state import ClusterState, Edit
from mqcd.queue.memory.shard_state import Options
from mqcd.queue.spool.silos import Silos
from mqcd.queue.store import ClusterStore
from mqcd.queue.wal.chain import find_chain
from mqcd.queue.wal.live_entries import LiveEntries
from mqcd.queue.workers import Workers


@value
class Owned:
    """A queue at rest whose lock the caller holds."""

    options: Options
    disk: Disk
    clock: Clock
    manifest: Manifest
    number: int
    """The number of the segment that never was. The files that a change makes are named after it: so it must
    not give two of one kind the same name. `commit` records it, and the next `owned` has a higher one."""

    @property
    def queue_root(self) -> Path:
        return self.options.settings.rootpath

    @property
    def spool_root(self) -> Path:
        return self.options.settings.spool.rootpath

    @property
    def silos(self) -> Silos:
        """As many as the spool was made with."""
        return Silos(self.spool_root, self.manifest.state.silos)

    def write_clusters(
        self, areas: Iterable[tuple[Area, Sequence[cluster.Line]]], first: int = 0
    ) -> list[ClusterState]:
        """Write records to clusters, durably; no MANIFEST lists them yet. Their numbers begin at `first`.

        Raises OSError.
        """
        settings = self.options.settings
        states: list[ClusterState] = []
        renames: list[tuple[Path, Path]] = []
        with self.disk.watching(self.queue_root) as watch:
            holding, room = self.options.schedule.holding, settings.maxclustersize
            places = (
                each for area, lines in areas for each in cluster.by_place(area, lines, holding).items()
            )
            for place, lines in places:
                for plan in cluster.plan(place, lines, self.number, room, settings.retry_granularity, first):
                    path = self.queue_root / plan.state.name
                    self.disk.mkdir(path.parent, sync=False)
                    temp = path.with_suffix(TEMP_SUFFIX)
                    chunks = [cluster.FIRST_LINE, *(line.raw for line in plan.lines)]
                    self.disk.write_temp(temp, chunks, sync=False)
                    renames.append((temp, path))
                    states.append(plan.state)
            self.disk.sync_filesystem(self.queue_root, watch)
        directories = {self.queue_root}
        for temp, path in renames:
            self.disk.rename(temp, path)
            directories |= {path.parent, path.parent.parent}
        for directory in directories:
            self.disk.sync_dir(directory)
        return states

    def commit(self, edit: Edit) -> None:
        """Make a change by its edit, which says that the segment `number` has been exported and evacuated. A
        change may have several edits with one number, as a repair has. Raises OSError."""
        self.manifest.commit(replace(edit, first_live=self.number + 1, exported=self.number))

    def remove_clusters(self, clusters: Iterable[ClusterState]) -> None:
        """Remove files that an edit has ended, and directories of a due time that are empty then. Raises
        OSError."""
        for each in clusters:
            path = self.queue_root / each.name
            self.disk.unlink(path)
            # The directory of a due time (`clusters.file._name`).
            if path.parent.name.startswith("T"):
                self.disk.rmdir(path.parent)


@asynccontextmanager
async def owned(
    options: Options,
    clock: Clock,
    observer: Observer,
    disk: Disk | None = None,
    workers: Workers | None = None,
) -> AsyncIterator[Owned]:
    """Own a queue for a while; one that is not there is made.

    Raises StoreBusy when a server runs or the journal could not be emptied, StoreDamaged, OSError.
    """
    disk = disk or Disk()
    store = ClusterStore(options, clock, observer, disk, workers)
    await store.open()
    try:
        await store.recovered()
    finally:
        await store.close()
    root = options.settings.rootpath
    lock_fd = await take_lock(disk, root)
    try:
        path = root / "MANIFEST"
        state = manifests.read(disk, path)
        if state is None:
            raise StoreDamaged(f"{path} is missing. Run `mqcd fsck`.")
        chain = find_chain(disk, root / "journal", state)
        replay = LiveEntries()
        for segment in chain:
            replay.read(disk, segment, last=segment is chain[-1])
        # Not entries alone: frames also say what was taken from clusters, and hold events of no file yet.
        if replay.damage or any(segment.next_ordinal for segment in chain):
            raise StoreBusy(f"{root}: the journal could not be emptied; is the disk full? The log says why")
        number = max([state.first_live, *(segment.number + 1 for segment in chain)])
        manifest = Manifest(disk, path, state)
        try:
            yield Owned(options=options, disk=disk, clock=clock, manifest=manifest, number=number)
        finally:
            manifest.close()
    finally:
        disk.close(lock_fd)
