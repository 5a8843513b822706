"""Takes a consistent view: MANIFEST and journal of one moment, under a pin.

What a server does meanwhile, and what then: `races`. Nothing that was read here changes afterwards, and
memory does not grow with the queue: of the journal is kept where the lines are (`LiveIndex`).
"""

from __future__ import annotations

from pathlib import Path

from mqcd.core.errors import StoreBusy, StoreDamaged, StoreUnavailable
from mqcd.disk.durable import Disk
from mqcd.queue.disk.vacancy import check_vacant
from mqcd.queue.manifest import log as manifests
from mqcd.queue.manifest.state import ManifestState
from mqcd.queue.reading import races
from mqcd.queue.reading.live_index import LiveIndex
from mqcd.queue.wal.chain import find_chain

_TRIES = 5
"""So often MANIFEST and journal are read until both are of one moment. With a pin held only one evacuation
can be committed, so the second is the last, unless the server needs room so much that it waits for nobody."""


def require_queue(disk: Disk, queue_root: Path) -> ManifestState:
    """The MANIFEST of a queue. Raises StoreUnavailable where there is no queue, StoreDamaged, OSError."""
    state = manifests.read(disk, queue_root / "MANIFEST")
    if state is None:
        check_vacant(disk, queue_root)
        raise StoreUnavailable(f"{queue_root} holds no queue")
    return state


class Pinned:
    """MANIFEST and journal; close it when done.

    Raises StoreDamaged, StoreBusy, StoreUnavailable, OSError.
    """

    def __init__(self, disk: Disk, queue_root: Path, given: ManifestState | None = None) -> None:
        """`given` stands for a MANIFEST that cannot be read; then the queue needs no pin either."""
        self._disk = disk
        self._queue_root = queue_root
        self._given = given
        self._pin = races.take_pin(disk, queue_root)
        try:
            self.state = self.read_manifest()
            if self._pin is None and given is None:
                raise StoreUnavailable(f"{queue_root} holds no queue")
            self.journal = self._read_one_moment()
            self.clusters = self.journal.clusters(self.state)
            """By name, each from its effective cursor on."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the pin: from now on the server may remove what is read."""
        if self._pin is not None:
            self._disk.close(self._pin)
            self._pin = None

    def read_manifest(self) -> ManifestState:
        """What the MANIFEST says now."""
        return require_queue(self._disk, self._queue_root) if self._given is None else self._given

    def _read_one_moment(self) -> LiveIndex:
        """The journal of the moment of `state`, which is read again where an evacuation came between."""
        for _ in range(_TRIES):
            journal = self._read_journal()
            later = races.evacuated_between(self.state, journal, self.read_manifest)
            if later is None:
                return journal
            self.state = later
        raise StoreBusy(races.MOVED_ON)

    def _read_journal(self) -> LiveIndex:
        """The live segments of `state`."""
        journal = LiveIndex()
        try:
            segments = find_chain(self._disk, self._queue_root / "journal", self.state)
            for segment in segments:
                journal.read(self._disk, segment, last=segment is segments[-1])
        except (StoreDamaged, FileNotFoundError):
            races.check_not_freed(self.state, (), bool(journal.damage), self.read_manifest)
            raise
        races.check_not_freed(self.state, journal.located, bool(journal.damage), self.read_manifest)
        return journal
