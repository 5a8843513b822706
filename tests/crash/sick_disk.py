"""A disk that falls ill: any one call fails once, or from then on all that the illness touches, until mended.

It is the real disk with the file's journey kept: each call has its kind, its path below the root of the
queue under test, and its number among calls of the same kind and path. A file that has given EIO on a
write or a sync is spoiled: `relapses` tells of each later write to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mqcd.disk.durable import Buffer, Disk, Measure


class Kind(Enum):
    """What a call asks of the system."""

    OPEN = "open"
    OPEN_TO_WRITE = "open to write"
    CREATE = "create"
    READ = "read"
    WRITE = "write"
    RESERVE = "reserve"
    SYNC = "sync"
    SYNC_DIR = "sync of a directory"
    SYNC_ALL = "sync of a file system"
    MAKE_DIR = "make a directory"
    RENAME = "rename"
    LINK = "link"
    REMOVE = "remove"
    LIST = "list"
    LOOK = "look"
    FREE = "free space"
    LOCK = "lock"


_OPENS = frozenset((Kind.OPEN, Kind.OPEN_TO_WRITE, Kind.CREATE, Kind.SYNC_DIR, Kind.SYNC_ALL, Kind.LIST))
_TAKES_ROOM = frozenset(
    (Kind.CREATE, Kind.WRITE, Kind.RESERVE, Kind.SYNC, Kind.SYNC_ALL, Kind.MAKE_DIR, Kind.RENAME, Kind.LINK)
)
_CHANGES = _TAKES_ROOM | {Kind.OPEN_TO_WRITE, Kind.REMOVE, Kind.SYNC_DIR, Kind.FREE}
TOUCHES = {
    errno.ENOSPC: _TAKES_ROOM,
    errno.EDQUOT: _TAKES_ROOM,
    errno.EROFS: _CHANGES,
    errno.EIO: frozenset(Kind) - {Kind.LOCK},
    errno.EMFILE: _OPENS,
}
"""Which kinds of call an error befalls. EROFS comes from statvfs too: `Disk.free` makes it of the flag."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One call of a life, found again in the next life by what it does and not by its number."""

    kind: Kind
    path: str
    """Below the root of the queue under test."""
    nth: int

    @property
    def root(self) -> str:
        """Which of the roots it belongs to."""
        return self.path.partition("/")[0]

    def __str__(self) -> str:
        return f"{self.kind.value} {self.path} #{self.nth}"


class SickDisk(Disk):
    """`mqcd.disk.durable.Disk` on the real one."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self.spots: list[Spot] = []
        self._seen: Counter[tuple[Kind, str]] = Counter()
        self._paths: dict[int, Path] = {}
        self._spoiled: dict[tuple[int, int], int] = {}
        """Inode of a file that gave EIO, and a descriptor that keeps its number from being used again."""
        self.relapses: list[str] = []
        self._spot: Spot | None = None
        self._code = 0
        self._lasting = False
        self.ill = False
        """Whether everything that the illness touches fails at this time."""
        self.failures = 0
        """Calls that have failed."""

    def infect(self, spot: Spot, code: int, *, lasting: bool) -> None:
        """Fail with `code` at this call; with `lasting` all that follows on its root too, until `mend`."""
        self._spot, self._code, self._lasting = spot, code, lasting

    def mend(self) -> None:
        self.ill, self._spot = False, None

    def forget(self) -> None:
        """A new process: of an old illness it knows what the disk could be told, and nothing else."""
        if self.ill:
            for fd in self._spoiled.values():
                os.close(fd)
            self._spoiled.clear()

    def dispose(self) -> None:
        """Let go of the spoiled files. Fails when the queue has left any other open."""
        for fd in self._spoiled.values():
            os.close(fd)
        assert not self._paths, f"left open: {sorted(map(str, self._paths.values()))}"

    def _meet(self, kind: Kind, path: Path) -> None:
        name = str(path.relative_to(self._top)) if path.is_relative_to(self._top) else str(path)
        spot = Spot(kind, name, self._seen[kind, name])
        self._seen[kind, name] += 1
        self.spots.append(spot)
        if spot == self._spot:
            self.ill = self._lasting
        elif not (self.ill and self._spot and spot.root == self._spot.root and kind in TOUCHES[self._code]):
            return
        self.failures += 1
        raise OSError(self._code, os.strerror(self._code), str(path))

    def _meet_write(self, kind: Kind, fd: int) -> None:
        stat = os.fstat(fd)
        inode = stat.st_dev, stat.st_ino
        if kind is Kind.WRITE and inode in self._spoiled:
            self.relapses.append(str(self._paths[fd]))
        try:
            self._meet(kind, self._paths[fd])
        except OSError as error:
            # The lock's text is a hint for people; its file cannot be replaced while others wait for it.
            if error.errno == errno.EIO and inode not in self._spoiled and self._paths[fd].name != "lock":
                self._spoiled[inode] = os.dup(fd)
            raise

    def open(self, path: Path, flags: int) -> int:
        writes = Kind.OPEN_TO_WRITE if flags & (os.O_WRONLY | os.O_RDWR) else Kind.OPEN
        self._meet(Kind.CREATE if flags & os.O_CREAT and not path.exists() else writes, path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self._paths[fd]
        super().close(fd)

    def pread_cached(self, fd: int, octets: int, offset: int) -> None:
        """Nothing is in memory: whoever reads comes to `pread`."""

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        self._meet(Kind.READ, self._paths[fd])
        return super().pread(fd, octets, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._meet_write(Kind.WRITE, fd)
        return super().pwritev(fd, buffers, offset)

    def datasync(self, fd: int) -> None:
        self._meet_write(Kind.SYNC, fd)

    def reserve(self, fd: int, octets: int) -> None:
        self._meet(Kind.RESERVE, self._paths[fd])
        super().reserve(fd, octets)

    def sync_dir(self, path: Path) -> None:
        self._meet(Kind.SYNC_DIR, path)

    @contextlib.contextmanager
    def watching(self, path: Path) -> Iterator[int]:
        self._meet(Kind.OPEN, path)
        with super().watching(path) as watch:
            yield watch

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        self._meet(Kind.SYNC_ALL, path)

    def rename(self, source: Path, target: Path) -> None:
        self._meet(Kind.RENAME, target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        self._meet(Kind.LINK, target)
        return super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._meet(Kind.REMOVE, path)
        super().unlink(path)

    def rmdir(self, path: Path) -> bool:
        self._meet(Kind.REMOVE, path)
        return super().rmdir(path)

    def make_dir(self, path: Path) -> None:
        self._meet(Kind.MAKE_DIR, path)
        super().make_dir(path)

    def names(self, path: Path) -> list[str]:
        self._meet(Kind.LIST, path)
        return super().names(path)

    def is_dir(self, path: Path) -> bool:
        self._meet(Kind.LOOK, path)
        return super().is_dir(path)

    def exists(self, path: Path) -> bool:
        self._meet(Kind.LOOK, path)
        return super().exists(path)

    def measure(self, path: Path) -> Measure | None:
        self._meet(Kind.LOOK, path)
        return super().measure(path)

    def free(self, path: Path) -> tuple[int, int]:
        self._meet(Kind.FREE, path)
        return super().free(path)

    def lock(self, fd: int, *, exclusive: bool) -> bool:
        self._meet(Kind.LOCK, self._paths[fd])
        return super().lock(fd, exclusive=exclusive)
