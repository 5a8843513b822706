"""The tables on disk, and the log by which a batch changes all of them or none. `layout` has the names.

A batch writes into staging; then its commit is written, whole and durable: which files move where, which
go, and which event files are in the tables from now on. Only then is anything moved. So a writer killed
before the commit has done nothing, and one killed after it is finished by the next one that opens
the tables: moves and removals can be repeated. Each attempt at a batch has a staging directory of its own,
so that executors that outlive their driver for a while write where nothing is read.

A reader holds `_moves` shared (`still`), and sees all of a commit or nothing of it; the writer waits for
that, for a minute at most. A writer that is killed between two moves leaves them to the next one: until then
readers see what it had done.

The directory may lie on any file system that all processes of the cluster share.
Raises PipelineBusy when another process writes and does not end in time, and TablesOfAnotherFormat for tables
that mean something else to the mqcd that made them.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, fields
from pathlib import Path

from mqcd.core.errors import MqcdError
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.pipeline.store.layout import (
    ACCOUNT,
    CHECKPOINT,
    JAVA,
    LOCK,
    LOG,
    MOVES,
    STAGING,
    STREAM_LOCK,
    Staging,
    commit_name,
    day_directory,
)

log = logging.getLogger(__name__)

STREAM = "mqcd pipeline stream"
"""The name by which others hear of one."""
_LOOK = 0.05
"""Seconds between two looks at whether a lock is free."""
_PATIENCE = 60.0
"""Seconds for which a commit waits for readers, and a waiting process for the end of a batch."""
_KEPT = 100
"""Commits that stay in the log; the last one says all, the others are for people."""

FORMAT = 3
"""Counts up when rows come to mean something else. 1: recipients were identified by SPID and QID alone.
2: those whose end was taken back were still `ended`."""

MANY = 40
NOTHING: Mapping[str, int] = {"files": 0, "events": 0, "damaged": 0}
"""The counts of a commit that takes no event files."""


class NoTables(MqcdError):
    """There is nothing to learn from yet. `mqcd pipeline run` makes the tables."""


class PipelineBusy(MqcdError):
    """Another process writes the tables, and has not ended in time. Try again when it is done."""


class TablesOfAnotherFormat(MqcdError):
    """These tables must not be mixed with what this mqcd would write; the text says what to do."""


@value
class Commit:
    """What one batch did, and what all batches so far amount to."""

    format: int = FORMAT
    batch: int = 0
    taken: dict[str, str] = field(default_factory=dict)
    """The event files that are in the tables, see `segments`."""
    sequences: dict[str, list[list[int]]] = field(default_factory=dict)
    """The ids of the events in those files, see `segments.Runs`."""
    move: list[list[str]] = field(default_factory=list)
    """Pairs of paths below the root: from staging into a table."""
    remove: list[str] = field(default_factory=list)
    last_hour: int = 0
    """The last hour, since 1970, in which anything happened."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was taken: files, events, damaged."""


_FIELDS = {each.name for each in fields(Commit)}


class Store:
    """The tables below one directory."""

    def __init__(
        self, root: Path, disk: Disk | None = None, *, many: int = MANY, patience: float = _PATIENCE
    ) -> None:
        # Java takes `a/link/../b` for `a/b`, the system does not: without `..` both mean the same.
        self.root = root.resolve() if ".." in root.parts else root.absolute()
        self.patience = patience
        self.many = many
        """So many files of a day are put together."""
        self._disk = disk or Disk()
        self._looked = False
        """Whether the tables are known to be of this format."""

    @property
    def classes(self) -> Path:
        """Where Java's classes are kept; it may not exist yet."""
        return self.root / JAVA

    # ------------------------------------------------------------ reading

    def table(self, name: str) -> Path:
        """The directory of a table; it may not exist yet."""
        return self.root / name

    def files(self, name: str, days: Iterable[str] | None = None) -> list[str]:
        """A table's files, of some days or of all. Raises TablesOfAnotherFormat."""
        if not self._looked:
            self.last()
        directory = self.table(name)
        found = [day_directory(day) for day in days] if days is not None else [day_directory("*")]
        return sorted(str(path) for day in found for path in directory.glob(f"{day}/*.parquet"))

    def last(self) -> Commit:
        """The newest commit; an empty one when there is none. Raises TablesOfAnotherFormat."""
        numbers = self._numbers()
        if not numbers:
            return Commit()
        stated = json.loads((self.root / LOG / commit_name(numbers[-1])).read_text("utf-8"))
        found = stated.get("format", 1)
        if found > FORMAT:
            raise TablesOfAnotherFormat(f"{self.root}: the tables are of a newer mqcd (format {found})")
        if found < FORMAT:
            raise TablesOfAnotherFormat(
                f"{self.root}: the tables are of an earlier mqcd (format {found}), and mean something else;"
                " move it away, and the next run makes them anew of the event files that are kept"
            )
        self._looked = True
        # What a newer mqcd added without another format does without being known.
        return Commit(**{name: stated[name] for name in _FIELDS & stated.keys()})

    def require(self) -> None:
        """Raise NoTables where no batch has made any."""
        if not self._numbers():
            raise NoTables(f"no tables in {self.root}: `mqcd pipeline run` makes them")

    def _numbers(self) -> list[int]:
        names = (path.stem for path in (self.root / LOG).glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    @contextmanager
    def still(self) -> Iterator[None]:
        """While the block lasts no file of a table comes or goes, for a minute at most: then the writer goes
        on, and reading a file that is gone fails. Raises OSError."""
        if not (self.root / MOVES).exists():
            # Nobody has begun to write.
            yield
            return
        fd = os.open(self.root / MOVES, os.O_RDONLY)
        try:
            # Moves take no longer than it takes to rename some files and to sync them.
            self._await(fd, self.patience, exclusive=False)
            yield
        finally:
            os.close(fd)

    def _await(
        self, fd: int, patience: float, *, exclusive: bool, stop: threading.Event | None = None
    ) -> bool:
        """Whether the lock was had in so many seconds, and before it was stopped."""
        pause = stop or threading.Event()
        while not self._disk.lock(fd, exclusive=exclusive):
            if patience <= 0 or pause.wait(_LOOK):
                return False
            patience -= _LOOK
        return True

    # ------------------------------------------------------------ writing

    @contextmanager
    def writing(
        self, what: str = "a batch", *, patience: float = 0, stop: threading.Event | None = None
    ) -> Iterator[Commit]:
        """Hold the lock, finish what was left, and give the last commit.

        `what` is shown to others that come meanwhile. Raises PipelineBusy when another process has held it
        for all of `patience`, seconds, or until `stop` was set; OSError.
        """
        with self._held(LOCK, what, patience, stop):
            (self.root / LOG).mkdir(exist_ok=True)
            last = self.last()
            self._apply(last)
            for left in (STAGING, ACCOUNT):
                shutil.rmtree(self.root / left, ignore_errors=True)
            try:
                yield last
            except BaseException:
                self._clear()
                raise

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Be the one stream; each of its batches is made in `writing`, and others may write in between.
        Raises PipelineBusy, OSError."""
        with self._held(STREAM_LOCK, STREAM):
            yield

    @contextmanager
    def accounting(self) -> Iterator[Path]:
        """Where the account, in `writing`, puts what the queue says: a path with nothing there
        yet."""
        path = self.root / ACCOUNT
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _held(
        self, lock: str, what: str, patience: float = 0, stop: threading.Event | None = None
    ) -> Iterator[None]:
        # The tables name every recipient of mail.
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Before the lock: who meets another writer here is `still` already at the first commit.
        (self.root / MOVES).touch(0o600)
        fd = os.open(self.root / lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            got = self._await(fd, min(patience, self.patience), exclusive=True, stop=stop)
            if not got and patience > self.patience and not (stop is not None and stop.is_set()):
                log.warning("%s waits, for %s writes the tables in %s", what, self._holder(fd), self.root)
                got = self._await(fd, patience - self.patience, exclusive=True, stop=stop)
            if not got:
                raise PipelineBusy(f"{self._holder(fd)} writes the tables in {self.root}; try again later")
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{what} (process {os.getpid()})".encode(), 0)
            yield
        finally:
            os.close(fd)

    def _clear(self) -> None:
        """Remove what failed before its commit: it may be what filled the disk that the queue is on."""
        committed = max(self._numbers(), default=0)
        for path in (self.root / STAGING).glob("*"):
            if int(path.name.partition("-")[0]) > committed:
                shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _holder(fd: int) -> str:
        """What the holder of the lock wrote there."""
        return os.pread(fd, 200, 0).decode("utf-8", "replace") or "another process"

    def staging(self, batch: int) -> Staging:
        """A new directory for what one attempt at a batch makes."""
        path = self.root / STAGING / f"{batch:010d}-{os.urandom(4).hex()}"
        path.mkdir(parents=True)
        return Staging(self.root, path, batch)

    def scratch(self) -> Path:
        """An empty directory for the stream; what is in it means nothing to the next one."""
        path = self.root / CHECKPOINT
        shutil.rmtree(path, ignore_errors=True)
        return path

    def commit(self, commit: Commit) -> None:
        """Make it so. Raises OSError: then it did not happen, or the next `writing` finishes it."""
        self._disk.sync_filesystem(self.root)
        text = json.dumps(asdict(commit), separators=(",", ":")).encode()
        self._disk.replace_file(self.root / LOG / commit_name(commit.batch), [text])
        self._apply(commit)
        shutil.rmtree(self.root / STAGING, ignore_errors=True)
        for number in self._numbers()[:-_KEPT]:
            (self.root / LOG / commit_name(number)).unlink(missing_ok=True)

    def _apply(self, commit: Commit) -> None:
        if not commit.move and not commit.remove:
            return
        move = [(self.root / source, self.root / target) for source, target in commit.move]
        move = [(source, target) for source, target in move if source.exists()]
        remove = [path for path in (self.root / name for name in commit.remove) if path.exists()]
        if move or remove:
            self._move(move, remove)
        self._disk.sync_filesystem(self.root)

    def _move(self, move: Iterable[tuple[Path, Path]], remove: Iterable[Path]) -> None:
        fd = os.open(self.root / MOVES, os.O_RDWR)
        try:
            # No longer than that: the commit has happened, so files move also where a reader goes on.
            self._await(fd, self.patience, exclusive=True)
            for source, target in move:
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)
            for path in remove:
                path.unlink(missing_ok=True)
        finally:
            os.close(fd)
