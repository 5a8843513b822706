"""The parts of one shard, and the few moves that a resident can make between them.

Everything here happens on the event loop, and only after the frame that records it is durable: this is
the memory's image of the disk. Who writes the frames: `mqcd.queue.store` and `mqcd.queue.keeper`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import InitVar, dataclass, field
from pathlib import Path

from mqcd.config.settings import QueueSettings
from mqcd.core.clockwatch import ClockWatch
from mqcd.core.model import Recipient
from mqcd.core.ports import Clock, Observer
from mqcd.core.schedule import RetrySchedule
from mqcd.core.spid import SpidSource
from mqcd.queue import record
from mqcd.queue.accounts import Accounts
from mqcd.queue.drafts import Drafts
from mqcd.queue.durable import Disk
from mqcd.queue.editing import Editing
from mqcd.queue.eventfiles import Source
from mqcd.queue.figures import Figures
from mqcd.queue.helper import Helper
from mqcd.queue.journal import Journal
from mqcd.queue.manifest import Manifest
from mqcd.queue.reaper import Reaper
from mqcd.queue.references import References
from mqcd.queue.retention import Retention
from mqcd.queue.ring import Resident, Ring, Segment, State
from mqcd.queue.scanning import Scans
from mqcd.queue.shelf import Shelf
from mqcd.queue.silos import Silos
from mqcd.queue.timekeeper import Timekeeper
from mqcd.queue.waiting import Waiting

Key = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a shard is told at its making."""

    settings: QueueSettings
    schedule: RetrySchedule
    source: Source
    """Node and shard."""
    events: Path
    """Directory of the event log."""
    retention: Retention = field(default_factory=Retention)
    """How long event files are kept."""


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
    shelf: Shelf
    helper: Helper
    scans: Scans
    reaper: Reaper
    references: References
    figures: Figures
    watch: InitVar[ClockWatch]
    silos: Silos = field(init=False)
    time: Timekeeper = field(init=False)
    editing: Editing = field(init=False)
    ready: bool = False
    """Whether what the last run left has been read, so that recipients may be claimed."""
    waiting: Waiting = field(default_factory=Waiting)
    accounts: Accounts = field(default_factory=Accounts)
    active: dict[Key, Resident] = field(default_factory=dict)
    """Claimed recipients."""
    drafts: Drafts = field(init=False)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    chores: set[asyncio.Task[None]] = field(default_factory=set)
    """What is to be done later."""

    def __post_init__(self, watch: ClockWatch) -> None:
        self.silos = Silos(self.spool_root, self.manifest.state.silos)
        self.time = Timekeeper(self.clock, watch, self.bring_forward)
        self.drafts = Drafts(self.clock)
        self.editing = Editing(self.manifest, self.journal, self.executor, self.clock)
        self.journal.on_begun = self.editing.begun

    def bring_forward(self) -> None:
        """The clock may have been ahead when due times were set: none is too far ahead of it now."""
        latest = self.latest_due()
        self.waiting.bring_forward(latest)
        self.shelf.bring_forward(latest)
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

    def in_journal(self) -> frozenset[int]:
        """Messages with a resident, and those that are on their way in."""
        residents = {each.spid for segment in self.ring for each in segment.residents.values()}
        return frozenset(residents.union(self.drafts.current()))

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

    def settle_in(self, resident: Resident, segment: Segment, ordinal: int, at: int, length: int) -> None:
        """A new resident has its first home. Its content lies there too, or in the spool."""
        segment.settle_in(resident, ordinal, at, length)
        self.ring.residents += 1
        self.accounts.add_resident(resident)

    def move(self, resident: Resident, segment: Segment, ordinal: int, at: int, length: int) -> None:
        """A resident has a new home."""
        del resident.segment.residents[resident.ordinal]
        segment.settle_in(resident, ordinal, at, length)
        self._borrow(resident, segment)

    def _borrow(self, resident: Resident, segment: Segment) -> None:
        lender = self.ring.live(resident.content.segment)
        if lender is not None:
            if lender is segment:
                lender.borrowers.discard(resident)
            else:
                lender.borrowers.add(resident)

    def rest(self, resident: Resident, following: Recipient) -> None:
        """A resident that was in flight waits, in the state that `following` tells."""
        area = resident.area
        self.active.pop((resident.spid, resident.qid), None)
        resident.begun = False
        resident.due = following.due
        resident.recipient = None
        resident.raw = b""
        resident.state = State.WAITING
        if following.area is not area:
            self.accounts.remove_resident(area, resident)
            resident.area = following.area
            self.accounts.add_resident(resident)
        self.waiting.add(resident)

    def end(self, resident: Resident) -> None:
        """A recipient has left the queue."""
        self.active.pop((resident.spid, resident.qid), None)
        home = resident.segment
        del home.residents[resident.ordinal]
        resident.state = State.GONE
        self.ring.residents -= 1
        self.accounts.remove_resident(resident.area, resident)
        lender = self.ring.live(resident.content.segment)
        if lender is not None and lender is not home:
            lender.borrowers.discard(resident)
        # A link always ends with its recipient.
        in_spool = lender is None
        if in_spool if resident.linked else self.references.finished(resident.spid, in_spool):
            self.reaper.remove(self.silos.file(resident.file))

    def evacuated(self, resident: Resident) -> None:
        """A resident's home is a cluster now; that there is one less has been counted."""
        resident.state = State.GONE
        self.accounts.forget(resident)
        lender = self.ring.live(resident.content.segment)
        if lender is not None:
            lender.borrowers.discard(resident)

    def raw_line(self, resident: Resident) -> bytes:
        """The resident's record line. Raises OSError."""
        if resident.raw:
            return resident.raw
        return self.disk.pread(resident.segment.fd, resident.length, resident.offset)

    def load(self, resident: Resident) -> Recipient:
        """The resident's recipient, decoded and kept. Raises OSError, DecodeError."""
        if resident.recipient is None:
            resident.raw = self.raw_line(resident)
            resident.recipient = record.decode(resident.raw)
        return resident.recipient
