"""A disk that records what was asked of it, and what of that a power cut at any moment leaves.

The model is stricter than any file system: data is durable after a sync of its file (or of the file
system), a name after a sync of its directory, a directory only together with those above it. A cut takes
from what was not synced either all or nothing, data and names apart from each other.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.queue import durable, tasks
from mqcd.queue.durable import Buffer, Disk
from mqcd.queue.helper import Helper


@dataclass(eq=False, slots=True)
class File:
    """One file, whatever its names are."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class Power:
    """What is on the disk, with and without what a power cut would take."""

    def __init__(self) -> None:
        self.names: dict[Path, File | None] = {}
        """None is a directory."""
        self.durable: dict[Path, File | None] = {}

    def sync_dir(self, path: Path) -> None:
        """All entries of a directory become durable, also those that are gone."""
        for kept in [name for name in self.durable if name.parent == path]:
            if kept not in self.names:
                del self.durable[kept]
        for name, file in self.names.items():
            if name.parent == path:
                self.durable[name] = file

    def sync_all(self) -> None:
        """Everything becomes durable."""
        self.durable = dict(self.names)
        for file in self.names.values():
            if file is not None:
                file.durable = bytes(file.data)

    def restore(self, root: Path, top: Path, *, unsynced_data: bool, unsynced_names: bool) -> None:
        """Write below `top` what a cut leaves of `root`."""
        names = self.names if unsynced_names else self.durable
        for name in sorted(names):
            file, target = names[name], top / name.relative_to(root)
            if not target.parent.is_dir():
                continue
            if file is None:
                target.mkdir()
            else:
                target.write_bytes(file.data if unsynced_data else file.durable)


Step = Callable[[Power], None]


@dataclass(frozen=True, slots=True)
class Op:
    """One call, as a change of the model; a mark is a word of the outside world."""

    name: str
    step: Step
    mark: tuple[str, int, int] | None = None
    site: str = ""
    """Which function outside of the disk asked for it."""

    @property
    def syncs(self) -> bool:
        """Whether it makes something durable."""
        return self.name.startswith("sync")


class RecordingDisk(Disk):
    """The real disk, with a trace of all changes below one root."""

    def __init__(self) -> None:
        self.trace: list[Op] = []
        self._lock = threading.RLock()
        self._open: dict[int, File] = {}
        self._live = Power()

    def adopt(self, root: Path) -> None:
        """Begin with what lies below `root`, all of it durable."""
        for path in sorted(root.rglob("*")):
            data = path.read_bytes() if path.is_file() else None
            self._note("adopt", _adopter(path, data))

    def mark(self, word: str, spid: int, number: int) -> None:
        """The outside world has seen something."""
        self._note("mark", lambda _power: None, (word, spid, number))

    def _note(self, name: str, step: Step, mark: tuple[str, int, int] | None = None) -> None:
        self.trace.append(Op(name, step, mark, _site()))
        step(self._live)

    def open(self, path: Path, flags: int) -> int:
        with self._lock:
            fd = super().open(path, flags)
            file = self._live.names.get(path)
            if file is None and flags & os.O_CREAT:
                self._note("create", _maker(path, file=True))
                file = self._live.names[path]
            if file is not None:
                self._open[fd] = file
                if flags & os.O_TRUNC:
                    self._note("truncate", lambda power: _file(power, path).data.clear())
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            super().close(fd)

    def _path(self, fd: int) -> Path | None:
        file = self._open.get(fd)
        return next((path for path, named in self._live.names.items() if named is file), None)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        with self._lock:
            done = super().pwritev(fd, buffers, offset)
            path, data = self._path(fd), b"".join(buffers)
            if path is not None:
                self._note("write", lambda power: _write(_file(power, path), data, offset))
            return done

    def reserve(self, fd: int, octets: int) -> None:
        with self._lock:
            super().reserve(fd, octets)
            path = self._path(fd)
            if path is not None:
                self._note("reserve", lambda power: _reserve(_file(power, path), octets))

    def datasync(self, fd: int) -> None:
        with self._lock:
            path = self._path(fd)
            if path is not None:
                self._note("sync", lambda power: _sync(_file(power, path)))

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            self._note("sync_dir", lambda power: power.sync_dir(path))

    def sync_filesystem(self, path: Path) -> None:
        with self._lock:
            self._note("sync_all", lambda power: power.sync_all())

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            super().rename(source, target)
            self._note("rename", lambda power: _rename(power, source, target))

    def link(self, source: Path, target: Path) -> bool:
        with self._lock:
            done = super().link(source, target)
            if done:
                self._note("link", lambda power: power.names.update({target: power.names[source]}))
            return done

    def unlink(self, path: Path) -> None:
        with self._lock:
            super().unlink(path)
            self._note("unlink", lambda power: _forget(power, path))

    def rmdir(self, path: Path) -> bool:
        with self._lock:
            done = super().rmdir(path)
            if done:
                self._note("rmdir", lambda power: _forget(power, path))
            return done

    def mkdir(self, path: Path) -> None:
        with self._lock:
            missing = []
            while not path.is_dir():
                missing.append(path)
                path = path.parent
            for new in reversed(missing):
                new.mkdir(mode=0o700)
                self._note("mkdir", _maker(new))
                self.sync_dir(new.parent)


def _site() -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, durable.__file__):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


def _maker(path: Path, *, file: bool = False) -> Step:
    return lambda power: power.names.update({path: File() if file else None})


def _adopter(path: Path, data: bytes | None) -> Step:
    def step(power: Power) -> None:
        file = File(bytearray(data), data) if data is not None else None
        power.names[path] = power.durable[path] = file

    return step


def _file(power: Power, path: Path) -> File:
    file = power.names[path]
    assert file is not None
    return file


def _write(file: File, data: bytes, offset: int) -> None:
    file.data.extend(bytes(max(0, offset - len(file.data))))
    file.data[offset : offset + len(data)] = data


def _reserve(file: File, octets: int) -> None:
    file.data.extend(bytes(max(0, octets - len(file.data))))


def _sync(file: File) -> None:
    file.durable = bytes(file.data)


def _rename(power: Power, source: Path, target: Path) -> None:
    power.names[target] = power.names.pop(source)


def _forget(power: Power, path: Path) -> None:
    power.names.pop(path, None)


def prefixes(trace: Sequence[Op]) -> Iterator[tuple[int, Power]]:
    """The disk before each call, and after the last one; the same object each time."""
    power = Power()
    for number, op in enumerate(trace):
        yield number, power
        op.step(power)
    yield len(trace), power


class LocalHelper(Helper):
    """Does the helper's tasks in this process, on a disk of the test's."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(-1)
        self._disk = disk

    async def run(self, task: tasks.Task) -> tasks.Result:
        return tasks.run(self._disk, task)
