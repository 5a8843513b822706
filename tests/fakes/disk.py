"""A disk that fails, waits and remembers on request; otherwise it is the real one."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from mqcd.disk.durable import Buffer, Disk


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the operating system, as it was begun."""

    operation: str
    """Name of the `Disk` method."""
    path: Path
    """The file or directory; for a rename or link the new name."""


class Gate:
    """Holds back whoever comes to it until `release`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        """Set when somebody waits at the gate."""
        self._open = threading.Event()

    def release(self) -> None:
        """Let all pass from now on."""
        self._open.set()

    def enter(self) -> None:
        """Wait for the release; a test that forgets it fails instead of hanging."""
        self.reached.set()
        if not self._open.wait(30):
            raise TimeoutError("nobody released the gate")


@dataclass(slots=True)
class _Rule:
    operation: str
    pattern: str
    passes: int
    times: int | None
    code: int
    gate: Gate | None = field(default=None)

    def meets(self, call: Call) -> bool:
        return self.operation in ("*", call.operation) and fnmatch(str(call.path), self.pattern)


class FaultyDisk(Disk):
    """`mqcd.disk.durable.Disk` whose every call is recorded and can be made to fail.

    Compound methods (write_temp, replace_file, mkdir, zero_fill) are seen as the calls they consist of.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._rules: list[_Rule] = []
        self._paths: dict[int, Path] = {}

    def fail(
        self,
        operation: str = "*",
        pattern: str = "*",
        *,
        passes: int = 0,
        times: int | None = 1,
        code: int = errno.EIO,
    ) -> None:
        """Make calls fail: after `passes` that still succeed, the next `times` (None = for ever).

        `pattern` is a shell pattern for the whole path.
        """
        self._rules.append(_Rule(operation, pattern, passes, times, code))

    def block(self, operation: str, pattern: str = "*") -> Gate:
        """Hold every such call back until the gate is released."""
        gate = Gate()
        self._rules.append(_Rule(operation, pattern, 0, None, 0, gate))
        return gate

    def mend(self) -> None:
        self._rules.clear()

    @property
    def armed(self) -> bool:
        """Whether a failure is still to come."""
        return any(rule.gate is None and rule.times != 0 for rule in self._rules)

    def count(self, operation: str, pattern: str = "*") -> int:
        """How many such calls there were."""
        return sum(c.operation == operation and fnmatch(str(c.path), pattern) for c in self.calls)

    def order(self, *operations: str) -> list[tuple[str, str]]:
        """The calls of these operations in order, each with the last part of its path."""
        return [(call.operation, call.path.name) for call in self.calls if call.operation in operations]

    def _meet(self, operation: str, path: Path) -> None:
        call = Call(operation, path)
        self.calls.append(call)
        for rule in list(self._rules):
            if not rule.meets(call):
                continue
            if rule.gate is not None:
                rule.gate.enter()
            elif rule.passes:
                rule.passes -= 1
            elif rule.times is None or rule.times:
                if rule.times is not None:
                    rule.times -= 1
                raise OSError(rule.code, os.strerror(rule.code), str(path))

    def _path(self, fd: int) -> Path:
        return self._paths.get(fd, Path("unknown"))

    def open(self, path: Path, flags: int) -> int:
        self._meet("open", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        # Closing never fails here: on Linux the descriptor is gone whatever close says.
        self.calls.append(Call("close", self._path(fd)))
        self._paths.pop(fd, None)
        super().close(fd)

    def pread_cached(self, fd: int, octets: int, offset: int) -> None:
        """Nothing is in memory: whoever reads comes to `pread`."""

    def pread(self, fd: int, octets: int, offset: int) -> bytes:
        self._meet("pread", self._path(fd))
        return super().pread(fd, octets, offset)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        self._meet("pwritev", self._path(fd))
        return super().pwritev(fd, buffers, offset)

    def datasync(self, fd: int) -> None:
        self._meet("datasync", self._path(fd))
        super().datasync(fd)

    def sync_dir(self, path: Path) -> None:
        self._meet("sync_dir", path)
        super().sync_dir(path)

    @contextlib.contextmanager
    def watching(self, path: Path) -> Iterator[int]:
        self._meet("watching", path)
        with super().watching(path) as watch:
            yield watch

    def sync_filesystem(self, path: Path, watch: int | None = None) -> None:
        self._meet("sync_filesystem", path)
        super().sync_filesystem(path, watch)

    def reserve(self, fd: int, octets: int) -> None:
        self._meet("reserve", self._path(fd))
        super().reserve(fd, octets)

    def rename(self, source: Path, target: Path) -> None:
        self._meet("rename", target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        self._meet("link", target)
        return super().link(source, target)

    def make_symlink(self, target: Path, path: Path) -> None:
        self._meet("make_symlink", path)
        super().make_symlink(target, path)

    def unlink(self, path: Path) -> None:
        self._meet("unlink", path)
        super().unlink(path)

    def names(self, path: Path) -> list[str]:
        self._meet("names", path)
        return super().names(path)

    def make_dir(self, path: Path) -> None:
        self._meet("make_dir", path)
        super().make_dir(path)

    def rmdir(self, path: Path) -> bool:
        self._meet("rmdir", path)
        return super().rmdir(path)
