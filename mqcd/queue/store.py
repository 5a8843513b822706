"""The clustered-file queue: `core.ports.QueueStore` on disk.

Promises: what an awaited call has changed is durable; no accepted recipient is ever lost; a crash at any
moment leaves a queue that the next `open` continues, and each attempt whose verdict it took away is reported
as outcome-unknown. docs/internals.md is the protocol; this module only joins the parts.

Settings read: the whole queue block. Failures: StoreUnavailable when nothing can be recorded (full, IO
error, closing), StoreBusy and StoreDamaged from `open`, Refused for a message that cannot fit in a frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from mqcd.core.errors import DecodeError, MqcdError, StoreUnavailable
from mqcd.core.figures import Distribution, EngineFigures
from mqcd.core.model import Area, AreaStats, Batch, Recipient, Settlement, Submission
from mqcd.core.ports import Clock, Content, FindConnection, Observer, Picked
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.queueing.turns import Places
from mqcd.core.selecting.parts import Listed
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe, let_go
from mqcd.disk.waits import HUNG_MS, within
from mqcd.eventlog.history import History
from mqcd.eventlog.retention import Retention
from mqcd.queue.admission import Admission
from mqcd.queue.checkpoint.checkpointer import Checkpointer
from mqcd.queue.disk.reserve import or_with_reserve
from mqcd.queue.disk.space import Space
from mqcd.queue.memory.figures import Figures
from mqcd.queue.memory.shard_state import Options, Shard
from mqcd.queue.read_only import READ_ONLY
from mqcd.queue.recovery.open import recover
from mqcd.queue.recovery.replay import replay_chain
from mqcd.queue.requests import look
from mqcd.queue.requests.accept import Acceptance
from mqcd.queue.requests.carries import Carries
from mqcd.queue.requests.claim import Claims
from mqcd.queue.requests.pick import Picking
from mqcd.queue.requests.staging import Staging
from mqcd.queue.requests.write import Writer
from mqcd.queue.wal.segments import Segment, SegmentEvent
from mqcd.queue.workers import Workers

log = logging.getLogger(__name__)


@value
class Parts:
    """The parts of an open store, from `open` to `close`."""

    shard: Shard
    admission: Admission
    acceptance: Acceptance
    writer: Writer
    claims: Claims
    checkpointer: Checkpointer
    recovery: asyncio.Task[None]
    """Brings in what the last run left."""


class ClusterStore:
    """One shard on disk."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        observer: Observer,
        disk: Disk | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._options = options
        self._workers = workers or Workers()
        self._clock = clock
        self._observer = observer
        self._disk = disk or Disk()
        settings = options.settings
        roots = {"queue": settings.rootpath, "spool": settings.spool.rootpath, "events": options.events}
        self._space = Space(self._disk, clock, roots, settings.minfree, settings.mininodes)
        self._watchers: list[Callable[[], None]] = []
        self._find: FindConnection | None = None
        self._open: Parts | None = None

    @property
    def _live(self) -> Parts:
        if self._open is None:
            raise StoreUnavailable("the queue is not open")
        return self._open

    async def open(self) -> None:
        """Accept mail again, then replay what the last run left.

        | then | is set by | from then on |
        |---|---|---|
        | `_open` | `_recover` | mail is accepted |
        | `Parts.recovery` is done, `Shard.ready` | `_replay` | recipients are claimed; `recovered` returns |
        | `Shard.tidy` | the checkpointer's first round | new clusters are written: batches, evacuations |

        Raises StoreUnavailable for what the disk refuses.
        """
        settings = self._options.settings
        if settings.read_only:
            raise StoreUnavailable(READ_ONLY)
        try:
            roots = settings.rootpath, settings.spool.rootpath
            # The same once more where a reserve file gave room for it.
            await or_with_reserve(self._disk, *roots, self._recover, self._recover)
        except OSError as error:
            raise StoreUnavailable(f"the queue cannot be opened: {describe(error)}") from error

    async def _recover(self) -> None:
        recovered = await recover(self._options, self._disk, self._clock, self._observer, self._workers)
        shard = recovered.shard
        # A reload may have come meanwhile.
        shard.options = self._options
        shard.watchers = self._watchers
        staging, acceptance = Staging(shard, self._space), Acceptance(shard, self._find)
        carries = Carries(shard)
        writer = Writer(shard, staging, acceptance, carries)
        checkpointer = Checkpointer(shard, carries, self._space)
        shard.time.look()
        recovery = asyncio.ensure_future(self._replay(shard, checkpointer, recovered.chain))
        self._open = Parts(
            shard=shard,
            acceptance=acceptance,
            writer=writer,
            claims=Claims(shard),
            checkpointer=checkpointer,
            recovery=recovery,
            admission=Admission(shard, checkpointer, self._space, staging, acceptance, recovery),
        )

    async def _replay(self, shard: Shard, checkpointer: Checkpointer, chain: Sequence[Segment]) -> None:
        """What the last run left, while new mail is taken; then claims open."""
        try:
            await replay_chain(shard, chain)
        except (OSError, DecodeError) as error:
            why = describe(error) if isinstance(error, OSError) else error
            raise StoreUnavailable(f"the journal cannot be read: {why}") from error
        except asyncio.CancelledError as error:
            # By `_let_go`. What waits for this task has not been cancelled.
            raise StoreUnavailable("the queue was closed before the journal was read") from error
        shard.ready = True
        checkpointer.start()
        shard.notify()

    async def recovered(self) -> None:
        """Return when what the last run left may be claimed. Raises StoreUnavailable."""
        await asyncio.shield(self._live.recovery)

    async def close(self) -> None:
        """Seal, export and evacuate what can be, then let go. Claimed recipients stay in the journal.

        What the disk refuses is logged, and left to the next start; so is all else once the disk does not
        answer. An internal error, also one that has ended the checkpointer before, is raised when all has
        been let go.
        """
        if self._open is None:
            return
        parts = self._open
        self._open = None
        parts.admission.closed = True
        parts.shard.helper.hurry()
        finishing = asyncio.ensure_future(self._finish(parts))
        try:
            if not await self._goes_on(parts.shard, finishing):
                log.error("the journal is left for the next start: the disk does not answer")
        finally:
            finishing.cancel()
            await self._let_go(parts, finishing)

    async def _finish(self, parts: Parts) -> None:
        """Seal, export and evacuate what can be."""
        try:
            await asyncio.shield(parts.recovery)
            await parts.checkpointer.stop()
            await parts.checkpointer.finish()
        except (OSError, MqcdError) as error:
            log.error("the journal is left for the next start: %s", error)

    async def _goes_on(self, shard: Shard, work: asyncio.Future[None]) -> bool:
        """Wait for `work` as long as the helper gives signs or groups become durable, which is all that a
        stop waits for; returns whether it is done. Its exceptions pass through."""
        before: tuple[int, int] | None = None
        while (now := (shard.helper.signs, shard.figures.syncs)) != before:
            before = now
            if await within(self._clock, HUNG_MS, work):
                return True
        return False

    async def _let_go(self, parts: Parts, finishing: asyncio.Future[None]) -> None:
        """In this order:

        | step | before the next, because |
        |---|---|
        | chores are cancelled; `recovery`, then `finishing`, have ended | nothing begins another write |
        | journal, MANIFEST, removals, threads | what a thread uses must not be closed |
        | scans and the helper end | the helper holds the lock, too |
        | files, then the lock | the next owner must find none of ours written |

        What does not end in HUNG_MS leaves files and lock to the end of the process; the helper, which has
        its own, the lock to its own end.
        """
        shard = parts.shard
        parts.recovery.cancel()
        for chore in tuple(shard.chores):
            chore.cancel()
        # Nothing else may have waited for it, and asyncio logs what nobody has asked for.
        read = asyncio.gather(parts.recovery, return_exceptions=True)
        quiet = await within(self._clock, HUNG_MS, asyncio.wait([read, finishing]))
        ending = asyncio.ensure_future(self._end_writes(shard))
        idle = quiet and await within(self._clock, HUNG_MS, asyncio.wait([ending]))
        if not await within(self._clock, HUNG_MS, self._end_processes(shard)):
            log.error("the helper process does not end: the queue stays locked until it does")
        if not idle:
            shard.executor.shutdown(wait=False)
            # A thread may still write: the lock must last until the process ends.
            log.critical("the disk does not answer: the queue stays locked until this process ends")
            return
        for part in (shard.deleter, shard.manifest, shard.keys):
            part.close()
        for segment in shard.ring:
            # The last reader closes its file.
            segment.on(SegmentEvent.CLOSE)
            if (fd := segment.release_fd()) >= 0:
                let_go(self._disk, fd, "a journal file")
        let_go(self._disk, shard.lock_fd, "the queue's lock")
        # An internal error goes up only now.
        ending.result()

    async def _end_processes(self, shard: Shard) -> None:
        await asyncio.gather(shard.scans.stop(), shard.helper.stop())

    async def _end_writes(self, shard: Shard) -> None:
        try:
            await shard.journal.stop()
            await shard.editing.stop()
            await shard.deleter.settled(lambda: True)
        finally:
            await self._workers.end(shard.executor)

    def reserve(self, several: bool) -> int:
        """A SPID; see the port. It says itself whether there are several recipients (`spid.is_several`)."""
        shard = self._live.shard
        spid = shard.spids.next(shard.time.believed(), several)
        shard.entries.reserved.add(spid)
        return spid

    def expect(self, spid: int) -> None:
        """A SPID of another shard may name a message that comes now."""
        shard = self._live.shard
        shard.spids.pass_over(spid)
        shard.entries.reserved.add(spid)

    def refusing(self) -> str:
        """Why no mail is taken now; "" when it is."""
        return "the queue is not open" if self._open is None else self._open.admission.refusing()

    def stalled(self) -> str:
        """Why no verdict can be recorded now, so that nothing is tried; "" when they can be."""
        return self._open.shard.journal.stalled if self._open else ""

    async def enqueue(self, submission: Submission) -> Sequence[Recipient]:
        """Take responsibility for a message."""
        return await self._live.admission.enqueue(submission)

    async def claim(
        self,
        room: int,
        now: int,
        skip: Mapping[str, int] | None = None,
        overdue: Callable[[Recipient], bool] | None = None,
        received_by: int | None = None,
        places: Places | None = None,
    ) -> Sequence[Recipient]:
        """Recipients that are due."""
        self._live.shard.time.look()
        room = self._bounded(room)
        return await self._live.claims.mail(room, now, skip or {}, overdue, received_by, places)

    async def claim_bounces(self, room: int) -> Sequence[Recipient]:
        """Recipients of area bounces."""
        return await self._live.claims.bounces(self._bounded(room))

    async def claim_removed(self, room: int) -> Sequence[Recipient]:
        """Removals whose grace is over."""
        return await self._live.claims.removed(self._bounded(room))

    async def claim_held(self, domain: str, room: int) -> Sequence[Recipient]:
        """Recipients that rest for a domain."""
        return await self._live.claims.held(domain, self._bounded(room))

    def held_domains(self) -> Collection[str]:
        """The domains for which some rest."""
        return self._live.claims.held_domains()

    def pick(self, selection: Selection, batch: Batch) -> AsyncGenerator[Picked, None]:
        """All recipients that a batch applies to."""
        live = self._live
        if not live.shard.ready:
            raise StoreUnavailable("the queue is still being read")
        return Picking(live.shard, live.claims, selection, batch).run()

    def _bounded(self, room: int) -> int:
        return min(room, self._options.settings.maxmemoryqueue or room)

    def begin(self, recipients: Sequence[Recipient], destination: str) -> Awaitable[None]:
        """Note that an attempt starts."""
        return self._live.writer.begin(recipients, destination)

    def settle(
        self, settlements: Sequence[Settlement], submissions: Sequence[Submission] = ()
    ) -> Awaitable[None]:
        """Record verdicts and what they give rise to."""
        return self._live.writer.settle(settlements, submissions)

    def park(self, recipients: Sequence[Recipient], until: int) -> Awaitable[None]:
        """Give claimed recipients back."""
        return self._live.writer.park(recipients, until)

    async def content(self, recipient: Recipient) -> Content:
        """The message's octets."""
        return await look.content(self._live.shard, self._disk, recipient)

    def scan(self, selection: Selection) -> AsyncGenerator[Recipient, None]:
        """A process of its own reads the files under a pin, as any other reader does."""
        return look.scan(self._live.shard, selection)

    async def browse(self, selection: Selection, after: str = "", by_age: bool = False) -> Listed:
        """A part of a list, made by a process of its own."""
        return await look.browse(self._live.shard, selection, after, by_age)

    async def measure(self, selection: Selection) -> AreaStats:
        """How much is selected, counted by a process of its own."""
        return await look.measure(self._live.shard, selection)

    async def lane_keys(self, selection: Selection) -> Collection[str]:
        """Their lane keys; see the port."""
        return await look.lane_keys(self._live.shard, selection)

    async def history(self, spid: int) -> History:
        """What happened to a message, also to one that has left."""
        return await look.history(self._live.shard, spid)

    async def changed_by(self, batch: str, since: int) -> int:
        """How many recipients a batch has changed, which was asked for then."""
        return await look.changed_by(self._live.shard, batch, since)

    def in_flight(self, recipient: Recipient) -> bool:
        """Whether it is claimed."""
        return recipient.key in self._live.shard.entries.active

    def stats(self) -> Mapping[Area, AreaStats]:
        """What each area holds."""
        shard = self._live.shard
        return shard.entries.accounts.stats(shard.cluster_index.clusters.values())

    def next_due(self) -> int | None:
        """When the next unclaimed recipient becomes due."""
        self._live.shard.time.look()
        return self._live.claims.next_due()

    def may_expire(self) -> bool:
        """Whether the wall clock can be believed."""
        return self._open is None or self._open.shard.time.look()

    def reload(self, schedule: RetrySchedule, retention: Retention) -> None:
        """Go by another schedule from now on, or from `open` on, and look for old event files if others are
        kept now."""
        changed = retention != self._options.retention
        self._options = replace(self._options, schedule=schedule, retention=retention)
        if self._open is not None:
            self._open.shard.options = self._options
            if changed:
                self._open.checkpointer.wake()

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` when something may have become claimable."""
        self._watchers.append(callback)

    def hand_over(self, find: FindConnection) -> None:
        """Ask `find` for a connection before a new message is written."""
        self._find = find
        if self._open is not None:
            self._open.acceptance.find = find

    @property
    def figures(self) -> Figures:
        """What the engine counts about itself."""
        return self._live.shard.figures

    def engine(self) -> EngineFigures:
        """The same as metrics want it, with what is counted elsewhere."""
        shard = self._live.shard
        figures, free = shard.figures, self._space.free()
        return EngineFigures(
            commit_seconds=figures.commit_us.scaled(1_000_000),
            commit_group_size=figures.group_size.scaled(1),
            syncs=figures.syncs,
            journal_fill_ratio=shard.ring.fill,
            evacuation_seconds=Distribution(
                counts=(figures.evacuations,), total=figures.evacuation_ms / 1000
            ),
            spid_cache_entries=len(shard.references),
            spid_cache_misses=shard.references.misses,
            reference_batch=len(shard.references.batch),
            reference_scan_seconds=Distribution(
                counts=(figures.reference_scans,), total=figures.reference_scan_ms / 1000
            ),
            recovery_seconds=figures.recovery_ms / 1000,
            quarantined_lines=figures.quarantined,
            unreadable_frames=figures.unreadable,
            removed_event_files=figures.removed_event_files,
            dropped_edits=figures.dropped_edits,
            hung_helpers=shard.helper.hung,
            idempotency_keys=shard.keys.count,
            idempotent_repeats=shard.keys.repeats,
            clock_leap_seconds=shard.time.off_by() / 1000,
            disk_free_bytes={name: octets for name, (octets, _) in free.items()},
            disk_free_inodes={name: inodes for name, (_, inodes) in free.items()},
        )
