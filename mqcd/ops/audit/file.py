"""One audit log on disk: writes whole lines to the right files.

Each line goes to the file of its own time (`rotation`), and with a limit on size to the last of that
time's files that has room. A line is in a file whole or not at all: a line cut off by a full disk is
truncated, and one torn by a power failure is ended before the next line. No file stays open between two
writes, so files can be moved away or removed at any time. Files 0600, directories 0700; what exists keeps its
rights. Nothing is synced: an audit log is not the ledger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mqcd.ops.audit.rotation import Names, last_number, numbered

Write = Callable[[int, memoryview], int]

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY


class AuditFile:
    """Where the lines of one audit log go; used by one thread at a time."""

    def __init__(self, names: Names, maxfile: int, *, write: Write = os.write) -> None:
        """`maxfile`: octets from which the next file is begun; 0 = no limit."""
        self._names = names
        self._maxfile = maxfile
        self._write = write

    def path(self, at: int) -> Path:
        """The file of the moment `at`, ms, or the first of that time's files."""
        return self._names.path(at)

    def append(self, path: Path, lines: Sequence[bytes]) -> int:
        """Write lines of the time of `path`, as many as one file takes, at least one; gives how many.

        Each line with its line end. Raises OSError; then none of them is in a file.
        """
        fd = self._open(self._with_room(path, len(lines[0])) if self._maxfile else path)
        try:
            size = os.fstat(fd).st_size
            count = self._fitting(size, lines)
            self._put(fd, size, b"".join(lines[:count]))
        finally:
            os.close(fd)
        return count

    def _with_room(self, path: Path, length: int) -> Path:
        """The last file of this time, or the one after it."""
        try:
            number = last_number(path, path.parent.iterdir())
            last = numbered(path, number)
            size = last.stat().st_size
        except FileNotFoundError:
            return path
        return numbered(path, number + 1) if size and size + length > self._maxfile else last

    def _fitting(self, size: int, lines: Sequence[bytes]) -> int:
        if self._maxfile:
            for count, line in enumerate(lines):
                size += len(line)
                if count and size > self._maxfile:
                    return count
        return len(lines)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, _FLAGS, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, _FLAGS, 0o600)

    def _put(self, fd: int, size: int, octets: bytes) -> None:
        try:
            if size and os.pread(fd, 1, size - 1) != b"\n":
                octets = b"\n" + octets
            rest = memoryview(octets)
            while rest:
                rest = rest[self._write(fd, rest) :]
        except OSError:
            # Where even this fails, the next write closes the torn end.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
