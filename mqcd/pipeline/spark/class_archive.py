"""The classes that Java loads for Spark, kept in a form that it maps into memory when it starts again.

    DIRECTORY/KEY-SIZE.jsa      190 MB, for one Java and one Spark; that of another takes its place
    DIRECTORY/lock              one process at a time makes one

To look some 20,000 classes up in 280 jars and to check them takes a small batch a fifth of its time (Java's
class data sharing, JEP 350). Java writes the archive when it ends. It gets its name once it is whole and
durable; the name has its size, for Java dies of an archive that was cut off. Anything else that is wrong
with one Java finds itself, and starts without it. Java trusts what the archive says, so the directory is its
owner's alone. Nothing depends on an archive: where none can be made, a warning says why.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mqcd.disk.durable import Disk, describe
from mqcd.pipeline.spark import gateway
from mqcd.pipeline.spark.gateway import jars
from mqcd.pipeline.spark.requirements import find_java

log = logging.getLogger(__name__)

MACHINE = "lib/server/libjvm.so"
"""Where below its home a Java that can do this has its virtual machine."""
_ROOM = 2 << 30
"""Octets that must be free on disk: the queue may lie on the same one."""
_SUFFIX = ".jsa"
_QUIET = "-Xlog:cds*=off:stderr"
"""Else Java logs each class that it cannot keep."""


class Archive:
    """What is kept in a directory for one Java and its class path."""

    def __init__(
        self,
        directory: Path,
        files: Iterable[Path],
        java: str = "",
        *,
        room: int = _ROOM,
        disk: Disk | None = None,
    ) -> None:
        """`files`: what Java's own archive is made of, and all jars in the order of the class path. Raises
        OSError for one that is not there. `java`: with what else it is started."""
        self._directory = directory
        self._key = _key(files, java)
        self._new = directory / f"{self._key}-{os.getpid()}.new"
        self._room = room
        self._disk = disk or Disk()
        self._lock = -1

    def options(self, *, make: bool = False) -> str:
        """What to start Java with; nothing where nothing is kept. `make`: then have it keep what it loads.

        The caller calls `close` or `abandon` when Java is not needed any more.
        """
        if os.pathsep in str(self._directory):
            # Java would take it for two.
            return ""
        try:
            kept = self._kept() or (self._begin() if make else None)
        except OSError as error:
            self._give_up(describe(error))
            return ""
        if kept is not None:
            return f"-XX:SharedArchiveFile={_quoted(kept)} -XX:+VerifySharedSpaces {_QUIET}"
        return f"-XX:ArchiveClassesAtExit={_quoted(self._new)} {_QUIET}" if self.making else ""

    @property
    def making(self) -> bool:
        """Whether Java keeps what it loads: its end takes some seconds."""
        return self._lock >= 0

    def close(self, end: Callable[[], int]) -> None:
        """Put what Java has made in place. `end` has it end, and gives its exit code; called where one is
        made only."""
        if not self.making:
            return
        try:
            code = end()
            if code or not self._new.exists():
                self._give_up(f"Java ended with {code} and made nothing to use")
                return
            self._disk.sync_filesystem(self._directory)
            path = self._path(self._new.stat().st_size)
            self._disk.rename(self._new, path)
            self._disk.sync_dir(self._directory)
            # Those of another Java or Spark.
            for other in set(self._directory.glob(f"*{_SUFFIX}")) - {path}:
                self._disk.unlink(other)
        except OSError as error:
            self._give_up(describe(error))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Make none after all; the caller has made sure that Java makes none."""
        if self.making:
            with suppress(OSError):
                # The next one does away with it.
                self._new.unlink()
            os.close(self._lock)
            self._lock = -1

    def _path(self, size: int) -> Path:
        return self._directory / f"{self._key}-{size}{_SUFFIX}"

    def _kept(self) -> Path | None:
        """The one there is, whole and owned by this user: Java runs what is in there."""
        if not self._directory.is_dir():
            return None
        here = self._directory.stat()
        if here.st_uid != os.geteuid() or here.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "others may write there", str(self._directory))
        for path in self._directory.glob(f"{self._key}-*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                if path == self._path(path.stat().st_size):
                    return path
        return None

    def _begin(self) -> Path | None:
        """Prepare for one that Java makes; gives the one that another process has made meanwhile."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        kept = None
        if not self._disk.lock(self._lock, exclusive=True) or (kept := self._kept()) is not None:
            os.close(self._lock)
            self._lock = -1
            return kept
        # What was left half made, or was cut off since.
        for path in (*self._directory.glob(f"{self._key}-*{_SUFFIX}"), *self._directory.glob("*.new")):
            self._disk.unlink(path)
        free, _ = self._disk.free(self._directory)
        if free < self._room:
            self._give_up(f"only {free >> 20} MB are free on disk, {self._room >> 20} are wanted")
        return None

    def _give_up(self, why: str) -> None:
        log.warning("%s: Java's classes are not kept, so it starts no quicker: %s", self._directory, why)
        self.abandon()


def archive_of(directory: Path, java: str) -> Archive | None:
    """What is kept for the Java and the package's own Spark that would start now; None where none can be.

    `java`: how it is started otherwise (memory, options): for another text another archive is kept.
    """
    machine = (find_java(os.environ) / MACHINE).resolve()
    if not machine.exists():
        # Another Java than OpenJDK's, which may not know how.
        return None
    base = sorted(machine.parent.glob("classes*.jsa"))
    try:
        return Archive(directory, [machine, *base, *jars()], java)
    except OSError as error:
        log.warning("Java starts no quicker: %s", describe(error))
        return None


@contextmanager
def starting_from(archive: Archive | None, *, make: bool, keeping: Callable[[], None]) -> Iterator[str]:
    """Options for the Java that the block starts, so that it starts from kept classes, or keeps them.

    What it keeps is put in place after the block, once `keeping` was called; nothing is after an error.
    """
    options = "" if archive is None else archive.options(make=make)
    try:
        yield options
    except BaseException:
        if archive is not None and archive.making:
            # Else it would write one that is not waited for.
            gateway.kill()
            archive.abandon()
        raise
    if archive is not None:
        if archive.making:
            keeping()
        archive.close(gateway.end)


def _key(files: Iterable[Path], java: str) -> str:
    known = hashlib.sha256(java.encode())
    for path in files:
        found = path.stat()
        known.update(f"{path}\n{found.st_size} {found.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return known.hexdigest()[:16]


def _quoted(path: Path) -> str:
    """As Spark reads words of a line of options."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
