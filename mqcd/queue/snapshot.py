"""The queue as it was at one moment, read from its files, with or without a running server.

A snapshot holds a pin while it is open: the server removes and reuses nothing that it may still read,
for a minute at most. A reader that is slower finds octets that do not check and is told to try again.
It writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mqcd.core.errors import DecodeError, StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.selection import Selection
from mqcd.core.spid import is_several
from mqcd.queue import manifest as manifests
from mqcd.queue import names, record, slot
from mqcd.queue.cluster import read_from, split_lines
from mqcd.queue.durable import Disk
from mqcd.queue.frame import Take
from mqcd.queue.manifest import ManifestState
from mqcd.queue.replay import Replay, find_chain
from mqcd.queue.ring import Resident, Segment
from mqcd.queue.spool import file_path

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Item:
    """One recipient of a snapshot."""

    recipient: Recipient
    in_flight: bool
    """An attempt had begun."""


class Snapshot:
    """A consistent view; close it when done. Raises StoreDamaged, StoreBusy, StoreUnavailable."""

    def __init__(self, disk: Disk, queue_root: Path, spool_root: Path) -> None:
        self._disk = disk
        self._queue_root = queue_root
        self._spool_root = spool_root
        self._pin = self._take_pin()
        try:
            state = manifests.read(disk, queue_root / "MANIFEST")
            if state is None:
                raise StoreUnavailable(f"{queue_root} holds no queue")
            self._state: ManifestState = state
            self._replay = Replay()
            self._segments: dict[int, Segment] = {}
            try:
                chain = self._read_journal()
            except (StoreDamaged, FileNotFoundError):
                self._check_not_overtaken([])
                raise
            if not chain or self._replay.damage or chain[0].number > state.first_live:
                self._check_not_overtaken(chain)
            self._residents = list(self._replay.settle_in(self._segments))
            self._inside = {
                resident.spid: resident
                for resident in self._residents
                if resident.content.segment in self._segments
            }
        except BaseException:
            self.close()
            raise

    def _read_journal(self) -> list[Segment]:
        state = self._state
        chain = find_chain(self._disk, self._queue_root / "journal", state.first_live, state.last_segment)
        for segment in chain:
            self._replay.read(self._disk, segment, last=segment is chain[-1])
            self._segments[segment.number] = segment
        return chain

    def _check_not_overtaken(self, chain: list[Segment]) -> None:
        """See that the server did not free the segments of our MANIFEST before they were read."""
        state = manifests.read(self._disk, self._queue_root / "MANIFEST")
        if state is None or state.first_live == self._state.first_live:
            return
        if self._replay.damage or not chain or chain[0].number >= state.first_live:
            raise StoreBusy("the queue has moved on while it was read; try again")

    def _take_pin(self) -> int:
        try:
            fd = self._disk.open(self._queue_root / "pin", os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"{self._queue_root} holds no queue") from error
        if not self._disk.lock(fd, exclusive=False):
            self._disk.close(fd)
            raise StoreBusy("the server is tidying the queue at this moment; try again")
        return fd

    def close(self) -> None:
        """Let go of the pin."""
        if self._pin >= 0:
            self._disk.close(self._pin)
            self._pin = -1

    @property
    def damage(self) -> int:
        """Stretches of the journal that do not check."""
        return len(self._replay.damage)

    def items(self, selection: Selection) -> Iterator[Item]:
        """All recipients that match, those in clusters first; at most `selection.limit`."""
        found = (item for item in self._all(selection) if selection.matches(item.recipient))
        return islice(found, selection.limit) if selection.limit is not None else found

    def batches(self, selection: Selection, size: int) -> Iterator[list[Item]]:
        """The same in lists of at most `size`; ends with an empty one."""
        items = self.items(selection)
        while batch := list(islice(items, size)):
            yield batch

    def _all(self, selection: Selection) -> Iterator[Item]:
        for name, cluster in self._state.clusters.items():
            take = self._take(name)
            cursor = take.cursor if take is not None else cluster.cursor
            if cursor < cluster.size:
                yield from self._cluster_items(name, cursor, cluster.size, selection)
        for resident in self._residents:
            if selection.area is None or resident.area is selection.area:
                yield Item(record.decode(resident.raw), resident.begun)

    def _take(self, name: str) -> Take | None:
        return self._replay.takes.get(name)

    def _cluster_items(self, name: str, cursor: int, size: int, selection: Selection) -> Iterator[Item]:
        try:
            data = read_from(self._disk, self._queue_root / name, cursor, size)
        except (FileNotFoundError, DecodeError) as error:
            raise StoreBusy("the queue has moved on while it was read; try again") from error
        wanted = b"%016X" % selection.spid if selection.spid is not None else None
        for line in split_lines(data):
            if wanted is not None and not line.startswith(wanted):
                continue
            try:
                yield Item(record.decode(line), False)
            except DecodeError:
                continue

    def stats(self) -> dict[Area, AreaStats]:
        """What each area holds."""
        totals = {area: [0, 0, 0] for area in Area}
        for name, cluster in self._state.clusters.items():
            take = self._take(name)
            left, octets = (take.left, take.octets) if take else (cluster.left, cluster.octets)
            if left:
                _add(totals[cluster.area], left, octets, cluster.received)
        for resident in self._residents:
            _add(totals[resident.area], 1, resident.size, resident.received)
        return {
            area: AreaStats(recipients=records, octets=octets, oldest=oldest or None)
            for area, (records, octets, oldest) in totals.items()
        }

    def content(self, spid: int, recipient: Recipient | None = None) -> Iterator[bytes]:
        """The octets of a message in chunks. Raises StoreUnavailable when it is not in the queue.

        Who knows one of its recipients says so: then no directory has to be searched for links.
        """
        resident = self._inside.get(spid)
        if resident is not None:
            yield self._from_segment(resident)
            return
        file = names.number(spid) if recipient is None else names.number_of(recipient)
        if recipient is None and is_several(spid):
            file = self._any_name(spid)
        try:
            fd = self._disk.open(file_path(self._spool_root, file), os.O_RDONLY)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"message {spid:016X} is not in the queue (any more)") from error
        try:
            offset = 0
            while data := self._disk.pread(fd, _CHUNK, offset):
                yield data
                offset += len(data)
        finally:
            self._disk.close(fd)

    def _any_name(self, spid: int) -> int:
        """The file number of any of a content's names."""
        shared = names.number(spid)
        silo = file_path(self._spool_root, shared).parent
        found = (names.parse(name) for name in self._disk.names(silo) if name.endswith(".msg"))
        return next((file for file in found if file is not None and names.spid_of(file) == spid), shared)

    def _from_segment(self, resident: Resident) -> bytes:
        content = resident.content
        segment = self._segments[content.segment]
        fd = self._disk.open(segment.path, os.O_RDONLY)
        try:
            header = slot.unpack(self._disk.pread(fd, slot.HEADER_SIZE, 0))
            if header != segment.header:
                raise StoreBusy("the queue has moved on while it was read; try again")
            return self._disk.pread(fd, content.length, content.offset)
        finally:
            self._disk.close(fd)


def _add(total: list[int], records: int, octets: int, received: int) -> None:
    total[0] += records
    total[1] += octets
    total[2] = min(total[2] or received, received)
