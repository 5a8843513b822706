"""The queue as it was at one moment, read from its files, with or without a running server.

A snapshot holds a pin while it is open: the server removes and reuses nothing that it may still read,
for a minute at most. A reader that is slower finds that the queue has moved on, and fails with StoreBusy:
`races` has the table, `pinned` takes the view, and here is what is read of it. It writes nothing. Clusters
and segments are read in parts, so that its memory does not grow with the queue.

Records that cannot be read are left out and counted, see `Unreadable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from mqcd.core.errors import ContentUnavailable, DecodeError, StoreUnavailable
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk, describe
from mqcd.disk.file_window import Window
from mqcd.queue.clusters.file import HEAD, check_known
from mqcd.queue.clusters.quarantine import place_of
from mqcd.queue.format.choosing import chooser
from mqcd.queue.format.record import Glance, parse, sound_all
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading.contents import Contents
from mqcd.queue.reading.pinned import Pinned
from mqcd.queue.reading.races import check_not_ended
from mqcd.queue.spool.silos import Silos
from mqcd.queue.wal.segments import Segment

Made = TypeVar("Made")
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


@dataclass(slots=True)
class Unreadable:
    """What iterations over a snapshot have met so far and left out.

    It is true of a selection once an iteration over it has ended: a line counts when its part is read, what a
    cluster lacks when it has been read to its end. An iteration that stops early counts what it has met;
    lines that are read again count again. `stats` counts lines of the journal alone: it reads none of
    clusters.
    """

    damaged_lines: int = 0
    """Record lines that do not check."""
    missing: int = 0
    """Records that clusters lack: the file is gone, short, or cannot be read."""
    error: OSError | None = None
    """Why the last cluster that is there, and could not be read, could not."""

    @property
    def records(self) -> int:
        return self.damaged_lines + self.missing


class Snapshot:
    """A consistent view; close it when done. Raises StoreDamaged, StoreBusy, StoreUnavailable."""

    def __init__(
        self, disk: Disk, queue_root: Path, spool_root: Path, state: ManifestState | None = None
    ) -> None:
        """`state` stands for a MANIFEST that cannot be read."""
        self.disk = disk
        self.unreadable = Unreadable()
        self._queue_root = queue_root
        self._pinned = pinned = Pinned(disk, queue_root, state)
        self._located = pinned.journal.located
        self._contents = Contents(disk, Silos(spool_root, pinned.state.silos), self._located)

    def close(self) -> None:
        self._pinned.close()

    @property
    def seen(self) -> int:
        """The wall time that the server last believed, ms; 0 = none."""
        return self._pinned.state.clock

    @property
    def left_out(self) -> int:
        """Records and stretches of the journal that are damaged or missing, as far as it has been read."""
        return self.damage + self.unreadable.records

    @property
    def damage(self) -> int:
        """Stretches of the journal that do not check."""
        return len(self._pinned.journal.damage)

    def stretches(self) -> dict[str, int]:
        """By the place under which a start quarantines each: how many records it concerns, at most."""
        return {
            place_of(f"segment-{each.segment}", each.start): each.records
            for each in self._pinned.journal.damage
        }

    def first_segment(self) -> int:
        """The oldest segment of the journal that is part of this view; those before it have event files."""
        return min(self._located, default=self._pinned.state.first_live)

    @property
    def segments(self) -> list[Segment]:
        """The journal's, in order."""
        return [each.segment for each in self._located.values()]

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
            # Of clusters the flags have no end.
            for text, begun in zip(sound_all(lines), flags, strict=False):
                if text is None:
                    self.unreadable.damaged_lines += 1
                    continue
                try:
                    if chosen is None or chosen(text):
                        made.append(make(text, begun))
                except DecodeError:
                    self.unreadable.damaged_lines += 1
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
        for located in self._located.values():
            for part in located.lines(self.disk):
                found = [(line, begun) for _, line, begun in part if line.startswith(wanted)]
                yield [line.removesuffix(b"\n") for line, _ in found], [begun for _, begun in found]

    def in_journal(self) -> Iterator[tuple[int, list[int], list[bytes]]]:
        """The record lines in the journal: by segment, their ordinals and themselves, in parts."""
        for number, located in self._located.items():
            for part in located.lines(self.disk):
                yield number, [each[0] for each in part], [each[1].removesuffix(b"\n") for each in part]

    def listed(self, selection: Selection) -> Iterator[ListedCluster]:
        """The clusters that may hold something selected."""
        before, where = selection.received_before, selection.where
        likely = where.on_some(("area",), attrgetter) if where is not None else None
        for name, cluster in self._pinned.clusters.items():
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
        except FileNotFoundError:
            check_not_ended(self._pinned.state, listed.name, self._pinned.read_manifest)
        except OSError as error:
            self.unreadable.error = error
        self.unreadable.missing += max(missing, 0)

    def _read_cluster(self, name: str, cursor: int, size: int) -> Iterator[list[bytes]]:
        """Its lines from the cursor on, as many as there are. Raises OSError, StoreDamaged."""
        path = self._queue_root / name
        fd = self.disk.open(path, os.O_RDONLY)
        try:
            window = Window(self.disk, fd, size, _PART)
            window.reach(0, HEAD)
            check_known(window.data, path, self._pinned.state.writer)
            yield from window.lines(cursor, size)
        finally:
            self.disk.close(fd)

    def stats(self) -> dict[Area, AreaStats]:
        """What each area holds, by the counts of clusters and the lines of the journal; a line that is not
        a record counts as damaged. Raises StoreBusy."""
        totals = {area: [0, 0, 0] for area in Area}
        for cluster in self._pinned.clusters.values():
            if cluster.left:
                _add(totals[cluster.area], cluster.left, cluster.octets, cluster.received)
        for located in self._located.values():
            for part in located.lines(self.disk):
                for _, line, _ in part:
                    try:
                        glance = Glance(line)
                    except DecodeError:
                        self.unreadable.damaged_lines += 1
                        continue
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


def item_of(text: str, begun: bool) -> Item:
    """What a record's text says. Raises DecodeError."""
    # As Item(...), without a call in between: a scan makes one for each record.
    return tuple.__new__(Item, (parse(text), begun))


def _add(total: list[int], records: int, octets: int, received: int) -> None:
    total[0] += records
    total[1] += octets
    total[2] = min(total[2] or received, received)
