"""Which file of the spool holds a content: the spool's directories, as many as it was made with.

The MANIFEST says how many; `silofactor` decides it for a queue that is still to be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from mqcd.core.queueing.spid import SILOS
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.format import filenames
from mqcd.queue.manifest.state import MOST_SILOS


@value(kw_only=False)
class Silos:
    """The silos of one spool."""

    root: Path
    count: int
    """A power of two, at most `MOST_SILOS`."""

    def __iter__(self) -> Iterator[Path]:
        return iter(_directories(self.root, self.count))

    def path(self, spid: int, qid: int = 0) -> Path:
        """The message's file, or the link of one recipient."""
        return self.file(filenames.number(spid, qid))

    def file(self, file: int) -> Path:
        """The file of a file number."""
        return self.root / filenames.path_of(file, self.count)

    def make(self, disk: Disk) -> None:
        """Make what is missing of the directories. Raises OSError."""
        for silo in self:
            disk.mkdir(silo, sync=False)
        # Also when all were there: an earlier start may have been killed before this.
        disk.sync_dir(self.root)


@lru_cache(maxsize=8)
def _directories(root: Path, count: int) -> tuple[Path, ...]:
    return tuple(root / f"s{number:02d}" for number in range(1, count + 1))


def count_of(disk: Disk, root: Path) -> int:
    """How many silos a spool has, by its directories: for one whose MANIFEST is lost."""
    there = set(disk.names(root))
    count = MOST_SILOS
    while count > 1 and f"s{count:02d}" not in there:
        count //= 2
    return count if "s01" in there else SILOS
