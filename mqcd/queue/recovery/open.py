"""From what lies on disk to a shard that takes mail in. There is no other way to start.

R1 lock, MANIFEST, names of the roots, the chain of segments; R2 find where the newest of them ends, make
what it holds durable, a new epoch: then the door may open. What the segments hold is read after that (R3,
`queue.recovery.replay`), so the time until then does not grow with the journal. Every step can be repeated:
after a crash in any of them the next start does them again.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from mqcd.core.clockwatch import ClockWatch
from mqcd.core.errors import StoreDamaged
from mqcd.core.ports import Clock, Observer
from mqcd.core.queueing.spid import EPOCH_MS, SpidSource, spid_at
from mqcd.disk.durable import Disk, describe, let_go
from mqcd.disk.waits import in_thread
from mqcd.queue.clusters.index import ClusterIndex
from mqcd.queue.clusters.quarantine import unfinished
from mqcd.queue.disk.owner_lock import check_roots, take_lock
from mqcd.queue.disk.vacancy import check_vacant
from mqcd.queue.manifest import log as manifest_log
from mqcd.queue.manifest.log import Manifest
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.memory.figures import Figures
from mqcd.queue.memory.shard_state import Options, Shard
from mqcd.queue.recovery.imports import name_events
from mqcd.queue.spool.deleter import Deleter
from mqcd.queue.spool.files import check_links
from mqcd.queue.spool.refcounts import References
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.chain import find_chain, irregular_files, unused_files
from mqcd.queue.wal.group_commit import Journal
from mqcd.queue.wal.scan import read_tail
from mqcd.queue.wal.segments import Ring, Segment, SegmentEvent
from mqcd.queue.workers import Workers

log = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_EPOCH_LEAP = 1 << 32
"""The most by which a start raises the epoch of segments, which is a number; `spid.EPOCH_MS` is a time."""
ENTRY_OCTETS = 768
"""Octets of memory that an entry takes at rest, for dividing the budget; a test measures it."""


@dataclass(slots=True)
class Recovered:
    """A shard that can take mail in, and the segments of the last run, which are still to be replayed."""

    shard: Shard
    chain: Sequence[Segment]


@dataclass(slots=True)
class _Image:
    """What was read from the disk."""

    manifest: Manifest
    chain: list[Segment]
    watch: ClockWatch


async def recover(
    options: Options,
    disk: Disk,
    clock: Clock,
    observer: Observer,
    workers: Workers,
) -> Recovered:
    """Open a shard. Raises StoreBusy, StoreDamaged, ConfigError, OSError."""
    begun = clock.monotonic()
    queue_root = options.settings.rootpath
    for path in (queue_root, queue_root / "journal", options.settings.spool.rootpath, options.events):
        disk.mkdir(path)
    lock_fd = await take_lock(disk, queue_root)
    try:
        executor = workers.executor()
    except OSError:
        let_go(disk, lock_fd, "the queue's lock")
        raise
    opened: list[Segment] = []
    manifests: list[Manifest] = []
    try:
        image = await in_thread(executor, _read_disk, options, disk, clock, opened, manifests)
        # Behind `write_anew` in `_read_disk`: an edit that was only found written may be gone after a power
        # cut, and the events of an import must not be there without it.
        await in_thread(executor, name_events, disk, options, image.manifest.state)
        shard = _assemble(options, disk, clock, observer, workers, image, executor, lock_fd)
    except BaseException:
        executor.shutdown(wait=True)
        for fd in (lock_fd, *(segment.fd for segment in opened if segment.fd >= 0)):
            let_go(disk, fd, "a file of a queue that is not opened")
        for manifest in manifests:
            manifest.close()
        raise
    shard.figures.recovery_ms = clock.monotonic() - begun
    return Recovered(shard, image.chain)


def _read_disk(
    options: Options, disk: Disk, clock: Clock, opened: list[Segment], manifests: list[Manifest]
) -> _Image:
    """R1 and R2, in a thread; the lists get what the caller closes, also after a failure."""
    now = clock.now()
    journal = options.settings.rootpath / "journal"
    state = _read_state(options, disk, now)
    for path in irregular_files(disk, journal):
        raise StoreDamaged(f"{path} is no regular file, and stands where one of the journal's belongs")
    chain = find_chain(disk, journal, state)
    unused = [*unused_files(disk, journal, chain), *_unfinished(disk, options.settings.rootpath)]
    opened += chain
    _open_chain(disk, chain, state)
    watch = _continue_behind(disk, chain, state, clock, now)
    manifest = Manifest(disk, options.settings.rootpath / "MANIFEST", state)
    manifests.append(manifest)
    manifest.write_anew()
    # Not before: an edit that was only found written may be gone after the next power cut.
    _remove(disk, unused)
    return _Image(manifest, chain, watch)


def _unfinished(disk: Disk, queue_root: Path) -> list[Path]:
    try:
        return unfinished(disk, queue_root)
    except OSError as error:
        log.error("the quarantine cannot be read: %s", describe(error))
        return []


def _read_state(options: Options, disk: Disk, now: int) -> ManifestState:
    """R1: the MANIFEST's state, or that of a new queue; the roots and silos that belong to it."""
    settings = options.settings
    queue_root, spool_root = settings.rootpath, settings.spool.rootpath
    state = manifest_log.read(disk, queue_root / "MANIFEST")
    new = state is None
    if new:
        check_vacant(disk, queue_root)
    check_roots(disk, [queue_root, spool_root], new=new)
    asked = 1 << settings.spool.silofactor
    if state is None:
        # Numbers begin at the time, so that a queue made anew never repeats the event ids of an old one.
        since = now - EPOCH_MS
        state = ManifestState(first_live=max(1, since // 1000), sequence=max(1, since * 1000), silos=asked)
    elif state.silos != asked:
        log.warning(
            "%s keeps the %d silos that it was made with; silofactor %d has no effect on it",
            spool_root, state.silos, settings.spool.silofactor,
        )  # fmt: skip
    Silos(spool_root, state.silos).make(disk)
    if settings.spool.hardlinks:
        check_links(disk, spool_root)
    return state


def _open_chain(disk: Disk, chain: list[Segment], state: ManifestState) -> None:
    """R1: open the segments, sealed and exported as the MANIFEST says."""
    for segment in chain:
        segment.fd = disk.open(segment.path, os.O_RDWR)
        segment.on(SegmentEvent.SEAL)
        if segment.number <= state.exported:
            segment.on(SegmentEvent.EXPORT)


def _continue_behind(
    disk: Disk, chain: list[Segment], state: ManifestState, clock: Clock, now: int
) -> ClockWatch:
    """R2: set the state to go on behind all that was ever written: epoch, sequence, SPID and clock. Why by a
    day and by an hour: docs/internals.md, "Clocks"."""
    last_at = _find_end(disk, chain[-1], state) if chain else 0
    # By a leap that cannot be foretold: octets of a mail must not check as a frame of ours.
    epoch = max([state.epoch, *(segment.epoch for segment in chain)])
    state.epoch = epoch + 1 + secrets.randbelow(_EPOCH_LEAP)
    # A header may have come to the disk without a frame: then no later segment names it as its forerunner.
    newest = next((segment for segment in reversed(chain) if not segment.empty), None)
    state.last_segment = newest.number if newest is not None else 0
    state.last_size = disk.size(newest.fd) if newest is not None else 0
    # The MANIFEST is never far behind the journal, unless the clock has leapt.
    seen = max(state.clock, min(last_at, state.clock + _DAY_MS))
    if now <= seen:
        # The clock went back: SPIDs that were handed out but never written down lie behind us too.
        state.spid = max(state.spid, spid_at(seen + _HOUR_MS))
    monotonic = clock.monotonic()
    watch = ClockWatch(state.clock, now, monotonic)
    state.clock = watch.believes(now, monotonic)
    return watch


def _remove(disk: Disk, paths: list[Path]) -> None:
    for path in paths:
        try:
            disk.unlink(path)
        except OSError as error:
            log.error("a file that is not needed could not be removed: %s", describe(error))


def _find_end(disk: Disk, newest: Segment, state: ManifestState) -> int:
    """Go on behind the newest segment, which alone has to be read for it; gives the time of its last frame.

    It is synced first: what a killed process wrote may be in the page cache only, and from here on it counts.
    """
    disk.datasync(newest.fd)
    tail = read_tail(disk, newest)
    state.sequence = max(state.sequence, tail.sequence)
    state.spid = max(state.spid, tail.spid)
    return tail.at


def _assemble(
    options: Options,
    disk: Disk,
    clock: Clock,
    observer: Observer,
    workers: Workers,
    image: _Image,
    executor: Executor,
    lock_fd: int,
) -> Shard:
    settings, state = options.settings, image.manifest.state
    # First, because it may fail, and nothing that must be ended has been begun yet. Behind it nothing may
    # raise: `recover` would end neither this nor the committer and the helper.
    deleter = Deleter(disk, executor, clock, settings.rootpath / "pin")
    figures = Figures(dropped_edits=1 if state.dropped else 0)
    ring = Ring(settings.rootpath / "journal", settings.journal.segments, state.first_live)
    for segment in image.chain:
        segment.sealed_at = clock.monotonic()
        ring.add(segment)
    spids = SpidSource(options.source.shard, state.spid)
    journal = Journal(
        ring=ring,
        disk=disk,
        committer=workers.committer(disk),
        clock=clock,
        spids=spids,
        epoch=state.epoch,
        sequence=state.sequence,
        capacity=settings.journal.segmentsize,
        max_entries=max(256, settings.memorybudget // ENTRY_OCTETS // settings.journal.segments),
        seal_age=settings.journal.seal_age,
        figures=figures,
    )
    shard = Shard(
        options=options,
        disk=disk,
        clock=clock,
        observer=observer,
        executor=executor,
        lock_fd=lock_fd,
        spids=spids,
        ring=ring,
        journal=journal,
        manifest=image.manifest,
        cluster_index=ClusterIndex(disk, settings.rootpath),
        helper=workers.helper(lock_fd),
        scans=workers.scans(),
        deleter=deleter,
        references=References(settings.spool.maxspidcache),
        figures=figures,
        watch=image.watch,
    )
    # Wakes what waits for the journal: claimers that were refused, and a batch.
    journal.on_mended = journal.on_broken = shard.notify
    return shard
