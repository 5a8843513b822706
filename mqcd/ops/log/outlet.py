"""Where the lines of the log go: a descriptor that may be slow, stuck, full or closed.

A thread writes to it, so that a blocked pipe or a full disk delays callers by PATIENCE_SECONDS at most, and
only once. Lines are whole: one that was cut off is ended before the next. Lines that find no room or cannot
be written are counted; the count is logged once writing succeeds again. When the descriptor is the journal's
(systemd sets JOURNAL_STREAM), each line begins with its priority.

A stream that is no descriptor, as tests have them, is written to at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TextIO

from mqcd.ops.log.writer import Writer

MOST_LINES = 10_000
"""Lines that wait for a descriptor that is stuck."""
PATIENCE_SECONDS = 0.2

_PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""sd-daemon(3)."""


class Line(NamedTuple):
    """One line, without its end."""

    level: str
    text: str


Lost = Callable[[int], Line]
"""The line that says how many were lost."""


class Outlet:
    """Writes the log's lines, from any thread."""

    def __init__(self, stream: TextIO, lost: Lost, environment: Mapping[str, str]) -> None:
        self._stream = stream
        self._loss_line = lost
        self._fd = _descriptor(stream)
        self.is_journal = self._fd is not None and _is_journal(self._fd, environment)
        """Whether its reader stamps the time on each line."""
        self._lost = 0
        self._unwritten = 0
        """Lines that a write has failed on."""
        self._torn = False
        self._stuck = False
        self._writer: Writer[Line] = Writer("log", self._write, limit=MOST_LINES)

    def put(self, lines: Sequence[Line], *, wait: bool) -> None:
        """Queue lines; with `wait` return once they are written, unless that takes too long."""
        if self._fd is None:
            self._write(lines)
            return
        self._writer.put(lines)
        if wait and not self._stuck:
            # Set again by `_write`, once something has gone through.
            self._stuck = not self._writer.drain(PATIENCE_SECONDS)

    @property
    def lost(self) -> int:
        """How many lines could not be written, from the beginning on."""
        return self._writer.lost + self._unwritten

    def close(self) -> None:
        """Write waiting lines, within a time limit."""
        self._writer.drain(PATIENCE_SECONDS)

    def _write(self, lines: Sequence[Line]) -> int:
        """Runs in the thread; counts every line as done, because lost lines are not kept."""
        lost = self._lost + self._writer.refused()
        written = [self._loss_line(lost), *lines] if lost else list(lines)
        octets = "".join(map(self._form, written)).encode("utf-8", "backslashreplace")
        try:
            self._put(b"\n" + octets if self._torn else octets)
        except (OSError, ValueError):
            # A reader that closed (EPIPE), a full disk, a closed stream: there is nowhere to report it.
            self._lost = lost + len(lines)
            self._unwritten += len(lines)
        else:
            self._lost = 0
            self._stuck = False
        return len(lines)

    def _form(self, line: Line) -> str:
        prefix = f"<{_PRIORITIES.get(line.level, 6)}>" if self.is_journal else ""
        return f"{prefix}{line.text}\n"

    def _put(self, octets: bytes) -> None:
        if self._fd is None:
            self._stream.write(octets.decode())
            self._stream.flush()
            return
        rest = memoryview(octets)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        finally:
            written = len(octets) - len(rest)
            if written:
                self._torn = octets[written - 1 : written] != b"\n"


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _is_journal(fd: int, environment: Mapping[str, str]) -> bool:
    """Whether the descriptor is the one that systemd says it connected to the journal."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"
