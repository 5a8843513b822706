"""The parts of one shard, and where they are.

The fields are bound while the store opens. Later only two are bound anew: `ready`, once, and `options`, by a
reload. What requests change of the queue is in four of the parts: `entries`, `cluster_index`, `references`,
and the keys in memory (`keys.live`). They also use up `spids`, and count in `figures`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import InitVar, dataclass, field
from pathlib import Path

from mqcd.config.settings import QueueSettings
from mqcd.core.clockwatch import ClockWatch
from mqcd.core.model import Area, Recipient
from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.spid import SpidSource
from mqcd.core.value import value
from mqcd.disk.durable import Disk, let_go
from mqcd.disk.waits import read_at
from mqcd.eventlog.files import Source
from mqcd.eventlog.retention import Retention
from mqcd.queue.clusters.index import ClusterIndex
from mqcd.queue.format import record
from mqcd.queue.helper.helper import Helper
from mqcd.queue.helper.scans import Scans
from mqcd.queue.keys.index import PRINTS_SHARE, Keys, MovedKeys
from mqcd.queue.manifest.clock_guard import ClockGuard
from mqcd.queue.manifest.log import Manifest
from mqcd.queue.manifest.state import ClusterState
from mqcd.queue.memory.editing import Editing
from mqcd.queue.memory.entries import Entries
from mqcd.queue.memory.figures import Figures
from mqcd.queue.spool.deleter import Deleter
from mqcd.queue.spool.refcounts import References
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.group_commit import Journal
from mqcd.queue.wal.segments import JournalEntry, Ring, Segment, SegmentEvent


@value
class Options:
    """The options of a shard."""

    settings: QueueSettings
    schedule: RetrySchedule
    source: Source
    """Node and shard."""
    events: Path
    """Directory of the event log."""
    retention: Retention = field(default_factory=Retention)
    """How long event files are kept."""


@value
class Moved:
    """What a MANIFEST edit has moved out of a segment."""

    first_live: int
    """Number of the segment that follows."""
    records: Mapping[Area, int]
    octets: Mapping[Area, int]
    """Of the entries that the segment had."""
    clusters: Sequence[ClusterState]
    """The ones that have them now."""
    bad: int
    """How many are in quarantine instead."""
    changed: Mapping[str, ClusterState]
    """Older clusters, as the edit has them."""
    keys: MovedKeys
    ended: Sequence[str]
    """Clusters and key files that nothing needs now."""


@dataclass(kw_only=True, slots=True)
class Shard:
    """All parts of an open shard."""

    options: Options
    disk: Disk
    clock: Clock
    observer: Observer
    executor: Executor
    """A few threads for blocking reads, large contents and MANIFEST edits."""
    lock_fd: int
    spids: SpidSource
    ring: Ring
    journal: Journal
    manifest: Manifest
    cluster_index: ClusterIndex
    helper: Helper
    scans: Scans
    deleter: Deleter
    references: References
    figures: Figures
    watch: InitVar[ClockWatch]
    keys: Keys = field(init=False)
    silos: Silos = field(init=False)
    time: ClockGuard = field(init=False)
    editing: Editing = field(init=False)
    entries: Entries = field(init=False)
    ready: bool = False
    """Whether what the last run left has been read, so that recipients may be claimed."""
    watchers: list[Callable[[], None]] = field(default_factory=list)
    picking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a batch picks: two at once would both replace a cluster, each by all that is in it."""
    tidy: asyncio.Event = field(default_factory=asyncio.Event)
    """What the last run left has been removed: new clusters may be written."""
    chores: set[asyncio.Task[None]] = field(default_factory=set)
    """What is to be done later."""

    def __post_init__(self, watch: ClockWatch) -> None:
        self.silos = Silos(self.spool_root, self.manifest.state.silos)
        self.entries = Entries(self.ring, self.references, self.silos, self.deleter)
        self.time = ClockGuard(self.clock, watch, self.bring_forward)
        room = self.options.settings.memorybudget // PRINTS_SHARE
        self.keys = Keys(self.disk, self.executor, self.queue_root, room, self.keys_since)
        self.editing = Editing(self.manifest, self.journal, self.executor, self.clock)
        self.journal.on_begun = self.editing.begun

    @property
    def may_claim(self) -> bool:
        """Whether recipients may be claimed: verdicts could be recorded, and the journal takes new work. In a
        full ring it still takes verdicts, but a claim would bring more of them than it has kept room for."""
        return self.ready and not (self.ring.full or self.journal.stalled)

    def keys_since(self) -> int:
        """Idempotency keys that were used before this time are forgotten, s."""
        return (self.time.believed() - self.options.settings.key_age) // 1000

    def bring_forward(self) -> None:
        """The clock may have been ahead when due times were set: none is too far ahead of it now."""
        latest = self.latest_due()
        self.entries.waiting.bring_forward(latest)
        self.cluster_index.bring_forward(latest, self.cluster_index.clusters.values())
        self.notify()

    def latest_due(self) -> int:
        """No due time can be later than this, ms."""
        return self.clock.now() + self.options.schedule.longest

    @property
    def spool_root(self) -> Path:
        """Where the silos lie."""
        return self.options.settings.spool.rootpath

    @property
    def queue_root(self) -> Path:
        """Where MANIFEST, journal and clusters lie."""
        return self.options.settings.rootpath

    def later(self, ms: int, callback: Callable[[], None]) -> None:
        """Call back after so much monotonic time, unless the shard is closed before."""

        async def wait() -> None:
            await self.clock.sleep(ms)
            callback()

        task = asyncio.get_running_loop().create_task(wait())
        self.chores.add(task)
        task.add_done_callback(self.chores.discard)

    def notify(self) -> None:
        """Something may have become claimable."""
        for callback in self.watchers:
            callback()

    def evacuated(self, segment: Segment, moved: Moved) -> list[JournalEntry]:
        """All that a segment had is elsewhere. Returns the entries of other segments whose content it had:
        from now on that is in the spool, and is removed there when they end.

        Called in the turn of the loop in which the edit became durable, and itself without an await: nothing
        may see the records in the clusters and in the segment at once.
        """
        index, accounts = self.cluster_index, self.entries.accounts
        segment.on(SegmentEvent.EVACUATE)
        self.ring.first_live = moved.first_live
        self.ring.entries -= sum(moved.records.values())
        self.keys.evacuated(moved.keys)
        index.recorded(moved.changed)
        for area, records in moved.records.items():
            accounts.take(area, records, moved.octets[area])
        for cluster in moved.clusters:
            accounts.add_cluster(cluster)
            index.add(cluster)
        # The clock may have leapt back since their due times were read.
        index.bring_forward(self.latest_due(), moved.clusters)
        self.figures.quarantined += moved.bad
        borrowers = list(segment.borrowers)
        segment.entries.clear()
        segment.borrowers.clear()
        self.entries.moving_held.clear()
        self.notify()
        return borrowers

    async def raw_line(self, entry: JournalEntry) -> bytes:
        """The entry's record line. Raises OSError. Meanwhile the entry may change its state and its place."""
        if entry.raw:
            return entry.raw
        segment = entry.segment
        segment.pin()
        try:
            return await read_at(self.disk, self.executor, segment.fd, entry.length, entry.offset)
        finally:
            if (fd := segment.unpin()) >= 0:
                let_go(self.disk, fd, "a journal file that is free")

    async def recipient(self, entry: JournalEntry) -> Recipient:
        """The entry's recipient, decoded and kept. Raises OSError, DecodeError; else as `raw_line`."""
        if entry.recipient is None:
            raw = await self.raw_line(entry)
            entry.recipient, entry.raw = record.decode(raw), raw
        return entry.recipient
