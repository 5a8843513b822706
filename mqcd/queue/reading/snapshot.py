"""The queue as it was at one moment, read from its files, with or without a running server.

A snapshot holds a pin while it is open: the server removes and reuses nothing that it may still read,
for a minute at most. A reader that is slower finds that the queue has moved on, and fails with StoreBusy.
What is damaged is left out and counted, and so are the records of a cluster that the MANIFEST lists and that
is not there. It writes nothing, and its memory does not grow with the queue: clusters and segments are read
in parts, and of what lives in the journal it remembers where the lines are (`LiveIndex`).

A server may change the files between the reads of the MANIFEST and of the journal, or later:

| race | found by | answer |
|---|---|---|
| an evacuation is committed between the two reads | `takes_beyond` | read both again |
| segments are freed before they are read | `_check_not_overtaken` | StoreBusy |
| a segment's file is reused while it is read | `check_same` | StoreBusy |
| a cluster is removed before it is read: an edit after ours has ended it | `read` | StoreBusy |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from mqcd.core.errors import ContentUnavailable, DecodeError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk, describe
from mqcd.disk.file_window import Window
from mqcd.queue.clusters.file import HEAD, OtherVersion, check_first_line
from mqcd.queue.clusters.quarantine import place_of
from mqcd.queue.disk.vacancy import check_vacant
from mqcd.queue.format.choosing import chooser
from mqcd.queue.format.record import Glance, parse, sound_all
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading.contents import Contents
from mqcd.queue.reading.live_index import MOVED_ON, LiveIndex
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.chain import find_chain
from mqcd.queue.wal.segments import Segment

Made = TypeVar("Made")
_TRIES = 5
"""So often MANIFEST and journal are read until both are of one moment. With a pin held only one evacuation
can be committed, so the second is the last, unless the server needs room so much that it waits for nobody."""
_PART = 1 << 16
"""Octets of a cluster that are read at once. What is made of them fits a cache, and stays below the 128 KB
from which on malloc takes each buffer from the kernel anew: twice the system time of a scan."""


class Item(NamedTuple):
    """One recipient of a snapshot."""

    recipient: Recipient
    in_flight: bool
    """An attempt had begun."""


class ListedCluster(NamedTuple):
    """A cluster that may hold something selected, as far as it has not been taken from."""

    name: str
    received: int
    """When the first of its recipients was accepted, ms."""
    cursor: int
    """Octet where its lines begin."""
    size: int
    left: int
    """How many lines there should be; 0 = not to be counted."""


def require_queue(disk: Disk, queue_root: Path) -> ManifestState:
    """The MANIFEST of a queue. Raises StoreUnavailable where there is no queue, StoreDamaged, OSError."""
    state = manifests.read(disk, queue_root / "MANIFEST")
    if state is None:
        check_vacant(disk, queue_root)
        raise StoreUnavailable(f"{queue_root} holds no queue")
    return state


class Snapshot:
    """A consistent view; close it when done. Raises StoreDamaged, StoreBusy, StoreUnavailable."""

    def __init__(
        self, disk: Disk, queue_root: Path, spool_root: Path, state: ManifestState | None = None
    ) -> None:
        """`state` stands for a MANIFEST that cannot be read."""
        self._given = state
        self.disk = disk
        self._queue_root = queue_root
        self._spool_root = spool_root
        self._pin = self._take_pin()
        try:
            self.damaged_lines = 0
            """Record lines read so far that do not check."""
            self.missing = 0
            """Records that the clusters read so far lack: they are gone, short, or cannot be read."""
            self.unread: OSError | None = None
            """Why a cluster that is there could not be read."""
            self._read_one_moment()
            silos = Silos(self._spool_root, self._state.silos)
            self._contents = Contents(disk, silos, self._index.located)
        except BaseException:
            self.close()
            raise

    def _read_one_moment(self) -> None:
        """Read MANIFEST and journal until no evacuation that the journal shows comes between them.

        A pin keeps what was evacuated from being removed, not from being committed: then records are in
        clusters that our MANIFEST does not list, and when some are taken from there, the journal holds them
        a second time. Any other edit leaves what was read true.
        """
        state = self._read_manifest()
        for _ in range(_TRIES):
            self._state, self._index = state, LiveIndex()
            self._read_checked()
            self._clusters = self._index.clusters(state)
            if not self._index.takes_beyond(state):
                return
            state = self._read_manifest()
            if not _evacuated_between(self._state, state):
                return
        raise StoreBusy(MOVED_ON)

    def _read_manifest(self) -> ManifestState:
        if self._given is not None:
            return self._given
        return require_queue(self.disk, self._queue_root)

    def _read_checked(self) -> None:
        try:
            segments = self._read_journal()
        except (StoreDamaged, FileNotFoundError):
            self._check_not_overtaken([])
            raise
        if not segments or self._index.damage or segments[0].number > self._state.first_live:
            self._check_not_overtaken(segments)

    def _read_journal(self) -> list[Segment]:
        state = self._state
        directory = self._queue_root / "journal"
        segments = find_chain(self.disk, directory, state)
        for segment in segments:
            self._index.read(self.disk, segment, last=segment is segments[-1])
        return segments

    def _check_not_overtaken(self, segments: list[Segment]) -> None:
        """See that the server did not free the segments of our MANIFEST before they were read."""
        state = self._read_manifest()
        if state.first_live == self._state.first_live:
            return
        if self._index.damage or not segments or segments[0].number >= state.first_live:
            raise StoreBusy(MOVED_ON)

    def _take_pin(self) -> int:
        try:
            fd = self.disk.open(self._queue_root / "pin", os.O_RDONLY)
        except FileNotFoundError as error:
            self._read_manifest()
            if self._given is not None:
                return -1
            raise StoreUnavailable(f"{self._queue_root} holds no queue") from error
        if not self.disk.lock(fd, exclusive=False):
            self.disk.close(fd)
            raise StoreBusy("the server is tidying the queue at this moment; try again")
        return fd

    def close(self) -> None:
        if self._pin >= 0:
            self.disk.close(self._pin)
            self._pin = -1

    @property
    def seen(self) -> int:
        """The wall time that the server last believed, ms; 0 = none."""
        return self._state.clock

    @property
    def left_out(self) -> int:
        """Records and stretches of the journal that are damaged or missing, as far as it has been read."""
        return self.damage + self.damaged_lines + self.missing

    @property
    def damage(self) -> int:
        """Stretches of the journal that do not check."""
        return len(self._index.damage)

    def stretches(self) -> dict[str, int]:
        """By the place under which a start quarantines each: how many records it concerns, at most."""
        return {place_of(f"segment-{each.segment}", each.start): each.records for each in self._index.damage}

    def first_segment(self) -> int:
        """The oldest segment of the journal that is part of this view; those before it have event files."""
        return min(self._index.located, default=self._state.first_live)

    @property
    def segments(self) -> list[Segment]:
        """The journal's, in order."""
        return [each.segment for each in self._index.located.values()]

    def items(self, selection: Selection) -> Iterator[Item]:
        """All recipients that match, those in clusters first; at most `selection.limit`."""
        return chain.from_iterable(self.batches(selection))

    def batches(self, selection: Selection) -> Iterator[list[Item]]:
        """The same in lists, none of them empty."""
        return self.project(selection, item_of)

    def project(self, selection: Selection, make: Callable[[str, bool], Made]) -> Iterator[list[Made]]:
        """What `make` makes of them, in lists, none of them empty. Raises StoreBusy.

        It is given a record's text, as `record.verify` gives it, and whether an attempt had begun. A line
        that is not sound, or of which `make` says so by a DecodeError, counts as damaged.
        """
        left = selection.limit
        chosen = chooser(selection)
        for lines, flags in self._lines(selection):
            made = []
            for text, begun in zip(sound_all(lines), flags, strict=False):
                if text is None:
                    self.damaged_lines += 1
                    continue
                try:
                    if chosen is None or chosen(text):
                        made.append(make(text, begun))
                except DecodeError:
                    self.damaged_lines += 1
            if left is not None:
                made = made[:left]
                left -= len(made)
            if made:
                yield made
            if left == 0:
                return

    def _lines(self, selection: Selection) -> Iterator[tuple[list[bytes], Iterable[bool]]]:
        """The record lines that may match, without line feeds, a part at a time; of each, whether an
        attempt had begun."""
        if selection.limit == 0:
            return
        wanted = b"%016X" % selection.spid if selection.spid is not None else b""
        for listed in self.listed(selection):
            for lines in self.read(listed):
                if wanted:
                    lines = [line for line in lines if line.startswith(wanted)]
                yield lines, repeat(False)
        for located in self._index.located.values():
            for part in located.lines(self.disk):
                found = [(line, begun) for _, line, begun in part if line.startswith(wanted)]
                yield [line.removesuffix(b"\n") for line, _ in found], [begun for _, begun in found]

    def in_journal(self) -> Iterator[tuple[int, list[int], list[bytes]]]:
        """The record lines in the journal: by segment, their ordinals and themselves, in parts."""
        for number, located in self._index.located.items():
            for part in located.lines(self.disk):
                yield number, [each[0] for each in part], [each[1].removesuffix(b"\n") for each in part]

    def listed(self, selection: Selection) -> Iterator[ListedCluster]:
        """The clusters that may hold something selected."""
        before, where = selection.received_before, selection.where
        likely = where.on_some(("area",), attrgetter) if where is not None else None
        for name, cluster in self._clusters.items():
            if (
                selection.area not in (None, cluster.area)
                or (before is not None and cluster.received >= before)
                or (likely is not None and not likely(cluster))
            ):
                continue
            if cluster.cursor < cluster.size:
                yield ListedCluster(name, cluster.received, cluster.cursor, cluster.size, cluster.left)

    def read(self, listed: ListedCluster) -> Iterator[list[bytes]]:
        """The lines of one of them, in parts. Raises StoreBusy, StoreDamaged."""
        missing = listed.left
        try:
            for lines in self._read_cluster(listed.name, listed.cursor, listed.size):
                missing -= len(lines)
                yield lines
        except FileNotFoundError as error:
            state = self._read_manifest()
            known = listed.name in self._state.clusters or state.first_live != self._state.first_live
            if known and listed.name not in state.clusters:
                # It had ended, and the server has removed it: only after the edit that says so.
                raise StoreBusy(MOVED_ON) from error
        except OSError as error:
            self.unread = error
        self.missing += max(missing, 0)

    def _read_cluster(self, name: str, cursor: int, size: int) -> Iterator[list[bytes]]:
        """Its lines from the cursor on, as many as there are. Raises OSError, StoreDamaged."""
        path = self._queue_root / name
        fd = self.disk.open(path, os.O_RDONLY)
        try:
            window = Window(self.disk, fd, size, _PART)
            window.reach(0, HEAD)
            self._check_version(window.data, path)
            yield from window.lines(cursor, size)
        finally:
            self.disk.close(fd)

    def _check_version(self, head: bytes, path: Path) -> None:
        try:
            check_first_line(head, path, self._state.writer)
        except OtherVersion as error:
            raise StoreDamaged(str(error)) from error
        except DecodeError:
            # The lines behind it may be whole.
            return

    def stats(self) -> dict[Area, AreaStats]:
        totals = {area: [0, 0, 0] for area in Area}
        for cluster in self._clusters.values():
            if cluster.left:
                _add(totals[cluster.area], cluster.left, cluster.octets, cluster.received)
        for located in self._index.located.values():
            for part in located.lines(self.disk):
                for _, line, _ in part:
                    glance = Glance(line)
                    _add(totals[glance.area], 1, glance.size, glance.received)
        return {
            area: AreaStats(recipients=records, octets=octets, oldest=oldest or None)
            for area, (records, octets, oldest) in totals.items()
        }

    def content(self, spid: int, recipient: Recipient | None = None) -> Iterator[bytes]:
        """The octets of a message in chunks.

        With one of its recipients no directory has to be searched for links. Raises
        StoreUnavailable when it is not in the queue, ContentUnavailable when it is, StoreBusy.
        """
        try:
            yield from self._contents.read(spid, recipient)
        except OSError as error:
            if recipient is None and not any(True for _ in self.items(Selection(spid=spid, limit=1))):
                raise StoreUnavailable(f"message {spid:016X} is not in the queue (any more)") from error
            raise ContentUnavailable(f"its content cannot be read: {describe(error)}") from error


def _evacuated_between(before: ManifestState, after: ManifestState) -> bool:
    """Whether clusters have been added, by an evacuation or, while no server ran, by an import."""
    return before.first_live != after.first_live or not after.clusters.keys() <= before.clusters.keys()


def item_of(text: str, begun: bool) -> Item:
    """What a record's text says. Raises DecodeError."""
    return Item(parse(text), begun)


def _add(total: list[int], records: int, octets: int, received: int) -> None:
    total[0] += records
    total[1] += octets
    total[2] = min(total[2] or received, received)
