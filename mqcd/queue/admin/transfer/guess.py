"""What a queue consists of, as far as its files show, when the MANIFEST cannot be read or a segment of the
journal is gone: for an export alone.

A guess may be wrong in one way: mail that is done already may be in it. What a readable line of the MANIFEST
says counts, also behind a damaged one; clusters that no such line names are read from their beginning,
and the journal from the oldest segment that may be part of it. So recipients may be there twice, and
recipients that were done in a segment or cluster that had ended may be there again. Nothing is written.

What is known to be lost is reported. A cluster that a line names and that is not there stays in the guess, so
that its readers count its records as missing; whether it had ended by a line that does not check is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreDamaged, StoreUnavailable
from mqcd.core.model import Area
from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe
from mqcd.queue.admin.findings import plain
from mqcd.queue.clusters.file import NAME, START
from mqcd.queue.disk.vacancy import check_vacant
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.state import ClusterState, ManifestState
from mqcd.queue.spool.silos import count_of
from mqcd.queue.wal.chain import SegmentMissing, find_chain, reach_back


@value(kw_only=False)
class Guess:
    """What the queue may consist of, and how much of it is guessed."""

    state: ManifestState
    damaged: int
    """Lines of the MANIFEST that do not check."""
    unlisted: int
    """Clusters that no line names."""
    gone: int
    """Clusters that the lines name and that are not there; the state has them, too."""
    lost: str
    """What there is to say of a segment that is known to be missing; empty when none is."""
    unread: list[str]
    """What there is to say of a MANIFEST, and of unlisted clusters, that are there and cannot be read."""


def guess(disk: Disk, queue_root: Path, spool_root: Path) -> Guess:
    """Raises StoreUnavailable when nothing has to be guessed or there is no queue, StoreDamaged, OSError."""
    path, journal = queue_root / "MANIFEST", queue_root / "journal"
    data, lost, unread = _look(disk, path, journal)
    state, ended, damaged = _read_lines(data)
    # The line that says it may be the one that is lost.
    state.silos = count_of(disk, spool_root)
    there = dict(_clusters(disk, queue_root))
    unlisted = there.keys() - state.clusters.keys() - ended
    gone = len(state.clusters.keys() - there.keys())
    for name in sorted(unlisted):
        try:
            state.clusters[name] = _whole(disk, queue_root, name)
        except OSError as error:
            state.clusters[name] = _cluster(name, START + 1)
            unread.append(describe(error))
    # Segments are evacuated one after another: where one has become clusters, those before it have ended.
    evacuated = max(there.values(), default=0)
    oldest = reach_back(disk, journal, state.writer)
    state = replace(state, first_live=max(state.first_live, evacuated, oldest))
    lost = lost or _newest_missing(disk, journal, state)
    return Guess(replace(state, last_segment=0), damaged, len(unlisted), gone, lost, unread)


def _look(disk: Disk, path: Path, journal: Path) -> tuple[bytes, str, list[str]]:
    """What the MANIFEST holds; what there is to say of a segment that is missing; of a MANIFEST that cannot
    be read."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        _check_there(disk, path.parent)
        return b"", "", []
    except OSError as error:
        return b"", "", [describe(error)]
    try:
        whole = manifests.read(disk, path)
        if whole is not None:
            find_chain(disk, journal, whole)
    except SegmentMissing as error:
        return data, plain(error), []
    except StoreDamaged:
        return data, "", []
    raise StoreUnavailable(f"{path} can be read, and so can the journal: nothing has to be guessed")


def _check_there(disk: Disk, queue_root: Path) -> None:
    """See that there is a queue where no MANIFEST is."""
    try:
        check_vacant(disk, queue_root)
    except StoreDamaged:
        return
    raise StoreUnavailable(f"{queue_root} holds no queue")


def _newest_missing(disk: Disk, journal: Path, state: ManifestState) -> str:
    """What there is to say when a line names a segment that no other one goes on from."""
    try:
        find_chain(disk, journal, state)
    except SegmentMissing as error:
        return plain(error)
    return ""


def _read_lines(data: bytes) -> tuple[ManifestState, set[str], int]:
    """What the lines that check amount to, the clusters that ended by them, and how many do not check."""
    state = ManifestState()
    ended: set[str] = set()
    damaged = 0
    for line in data.split(b"\n"):
        try:
            edit, _ = manifests.decode(line)
        except DecodeError:
            damaged += line.strip(b"\0") != b""
            continue
        state.apply(edit)
        ended.update(edit.end)
    return state, ended, damaged


def _clusters(disk: Disk, queue_root: Path) -> Iterator[tuple[str, int]]:
    """The clusters that are there, and the segment that each was made of."""
    for area in Area:
        for name in disk.names(queue_root / area):
            inside = disk.names(queue_root / area / name)
            for path in [f"{area}/{name}", *(f"{area}/{name}/{each}" for each in inside)]:
                form = NAME.fullmatch(path.rpartition("/")[2])
                if form is not None and disk.measure(queue_root / path) is not None:
                    yield path, int(form[1])


def _whole(disk: Disk, queue_root: Path, name: str) -> ClusterState:
    """A cluster from its beginning. Raises OSError."""
    fd = disk.open(queue_root / name, os.O_RDONLY)
    try:
        return _cluster(name, disk.size(fd))
    finally:
        disk.close(fd)


def _cluster(name: str, size: int) -> ClusterState:
    """A cluster that no line names; how many records it should have is unknown, but one at least: so one is
    missing where it turns out that none can be read."""
    return ClusterState(name=name, size=size, cursor=START, left=1, octets=0, received=0)
