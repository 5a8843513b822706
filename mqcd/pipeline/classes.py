"""The classes that Java loads for Spark, kept in a form that it maps into memory when it starts again.

    DIRECTORY/KEY-SIZE.jsa      190 MB, for one Java and one Spark; another of either takes its place
    DIRECTORY/lock              one process at a time makes one

To look some 20,000 classes up in 280 jars and to check them takes a small batch a fifth of its time (Java's
class data sharing, JEP 350). Java writes the archive when it ends. It gets its name once it is whole and
durable; the name tells its size, for Java dies of an archive that was cut off. What else may be wrong with
one Java finds by itself, and does without. It trusts what the archive says, so the directory is its owner's
alone. Nothing depends on an archive: where none can be made, a warning says why.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from mqcd.queue.durable import Disk, told

log = logging.getLogger(__name__)

MACHINE = "lib/server/libjvm.so"
"""Where below its home a Java that can do this has its virtual machine."""
_ROOM = 2 << 30
"""Octets that must be free on disk: the queue may lie on the same one."""
_SUFFIX = ".jsa"
_QUIET = "-Xlog:cds*=off:stderr"
"""Else Java tells of each class that it cannot keep."""


class Archive:
    """What is kept in a directory for one Java and its class path."""

    def __init__(
        self, directory: Path, files: Iterable[Path], *, room: int = _ROOM, disk: Disk | None = None
    ) -> None:
        """`files`: the virtual machine, and all jars in the order of the class path. Raises OSError for one
        that is not there."""
        self._directory = directory
        self._key = _key(files)
        self._new = directory / f"{self._key}-{os.getpid()}.new"
        self._room = room
        self._disk = disk or Disk()
        self._lock = -1

    def options(self, *, make: bool = False) -> str:
        """What to start Java with; nothing where nothing is kept. `make`: then have it keep what it loads.

        Whoever asked calls `close` when Java is not needed any more.
        """
        if os.pathsep in str(self._directory):
            # Java would take it for two.
            return ""
        kept = self._kept()
        if kept is not None:
            return f"-XX:SharedArchiveFile={_quoted(kept)} -XX:+VerifySharedSpaces {_QUIET}"
        if make:
            try:
                self._begin()
            except OSError as error:
                self._give_up(told(error))
        return f"-XX:ArchiveClassesAtExit={_quoted(self._new)} {_QUIET}" if self.making else ""

    @property
    def making(self) -> bool:
        """Whether Java was told to keep what it loads: its end takes some seconds."""
        return self._lock >= 0

    def close(self, end: Callable[[], int]) -> None:
        """Put what Java has made in place. `end` has it end, and gives its exit code; called where one is
        made only."""
        if not self.making:
            return
        try:
            code = end()
            if code:
                self._give_up(f"it ended with {code}")
            elif self._new.exists():
                self._disk.sync_filesystem(self._directory)
                self._disk.rename(self._new, self._path(self._new.stat().st_size))
                self._disk.sync_dir(self._directory)
        except OSError as error:
            self._give_up(told(error))
        finally:
            self._let_go()

    def _path(self, size: int) -> Path:
        return self._directory / f"{self._key}-{size}{_SUFFIX}"

    def _kept(self) -> Path | None:
        for path in self._directory.glob(f"{self._key}-*{_SUFFIX}"):
            if path == self._path(path.stat().st_size):
                return path
        return None

    def _begin(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not self._disk.lock(self._lock, exclusive=True):
            # Another process is making one.
            os.close(self._lock)
            self._lock = -1
            return
        # Those of another Java or Spark, and what was left half made.
        for path in (*self._directory.glob(f"*{_SUFFIX}"), *self._directory.glob("*.new")):
            path.unlink(missing_ok=True)
        free = shutil.disk_usage(self._directory).free
        if free < self._room:
            self._give_up(f"only {free >> 20} MB are free on disk, {self._room >> 20} are wanted")

    def _give_up(self, why: str) -> None:
        log.warning("%s: Java's classes are not kept, so it starts no quicker: %s", self._directory, why)
        self._let_go()

    def _let_go(self) -> None:
        if self.making:
            with suppress(OSError):
                # The next one does away with it.
                self._new.unlink()
            os.close(self._lock)
            self._lock = -1


def _key(files: Iterable[Path]) -> str:
    known = hashlib.sha256()
    for path in files:
        found = path.stat()
        known.update(f"{path}\n{found.st_size} {found.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return known.hexdigest()[:16]


def _quoted(path: Path) -> str:
    """As Spark reads words of a line of options."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
