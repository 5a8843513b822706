"""Free space on the queue's file systems, looked at before mail is promised and once a second at most.

Content that streams in is counted against what the last look found, so that no stream, however quick or slow,
and no number of them together takes what is to stay free.

Settings read: `minfree`, `mininodes`. Below either, on any root, the door answers 4xx, while there is still
room to record what happens to the mail that is here, and opens again by itself. So it does for a file
system that has become read-only or cannot be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mqcd.core.ports import Clock
from mqcd.disk.durable import Disk, describe

_LOOK_MS = 1000


class Space:
    """What a shard's roots have left."""

    def __init__(self, disk: Disk, clock: Clock, roots: Mapping[str, Path], octets: int, inodes: int) -> None:
        self._disk = disk
        self._clock = clock
        self._roots = roots
        self._octets = octets
        self._inodes = inodes
        self._looked: int | None = None
        self._short = ""
        self._spare: dict[str, int] = {}
        """Octets beyond `minfree` that the last look found, less what was written since, by root."""

    def short(self) -> str:
        """What is short and where, "" when nothing is. A root that cannot be asked counts as short."""
        now = self._clock.monotonic()
        if self._looked is None or now - self._looked >= _LOOK_MS:
            self._looked = now
            self._short = self._look()
        return self._short

    def short_for(self, name: str, octets: int) -> str:
        """The same, for so many octets that are about to be written below the root of this name."""
        if short := self.short():
            return short
        if self._spare[name] < octets:
            self._looked = None
            if short := self.short():
                return short
        if self._spare[name] < octets:
            return f"{self._roots[name]}: no room for {octets} octets more, minfree is {self._octets}"
        self._spare[name] -= octets
        return ""

    def room_for(self, root: Path, octets: int) -> bool:
        """Whether a root has so much beyond what is to stay free."""
        try:
            return self._disk.free(root)[0] >= self._octets + octets
        except OSError:
            return False

    def free(self) -> Mapping[str, tuple[int, int]]:
        """Octets and inodes that are free, by the name of the root; none where it cannot be asked."""
        found = {}
        for name, root in self._roots.items():
            try:
                found[name] = self._disk.free(root)
            except OSError:
                found[name] = 0, 0
        return found

    def _look(self) -> str:
        for name, root in self._roots.items():
            try:
                octets, inodes = self._disk.free(root)
            except OSError as error:
                return describe(error)
            if octets < self._octets:
                return f"{root}: {octets} octets are free, minfree is {self._octets}"
            # A file system without a fixed number of inodes reports 0 of them.
            if 0 < inodes < self._inodes:
                return f"{root}: {inodes} inodes are free, mininodes is {self._inodes}"
            self._spare[name] = octets - self._octets
        return ""
