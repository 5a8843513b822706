"""Event files as a server leaves them: segments with their numbers, and files of best-effort events.

Lines are put together from text, as the server does it: an encoder would take longer than all the rest.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

_GZIP = 31
_LINES = 2000
_SECONDS = [f"{ms // 1000:02d}.{ms % 1000:03d}Z" for ms in range(60_000)]


class EventWriter:
    """The files of one node. Sequences begin at 1 and have no gaps."""

    def __init__(self, directory: Path, node: str, segment: int) -> None:
        self.sequence = 0
        self._directory, self._node = directory, node
        self._segment = segment
        self._number = 0
        self._full = 0
        """The sequence after which the segment is full."""
        self._head = f'{{"v":1,"id":"{node}/0/'
        self._lines: list[str] = []
        self._file: BinaryIO | None = None
        self._packer = zlib.compressobj(1, wbits=_GZIP)
        self._minutes: dict[int, str] = {}
        """Some thousands for a log of days."""
        self._asides: list[str] = []

    def time(self, at: int) -> str:
        """RFC 3339, UTC, milliseconds."""
        minute, rest = divmod(at, 60_000)
        written = self._minutes.get(minute)
        if written is None:
            written = self._minutes[minute] = f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%dT%H:%M}:"
        return written + _SECONDS[rest]

    def add(self, verb: str, at: int, rest: str) -> None:
        """One transition; `rest` are its fields from the comma on."""
        if self._file is None:
            self._open()
        self.sequence = sequence = self.sequence + 1
        lines = self._lines
        lines.append(f'{self._head}{sequence}","event":"{verb}","at":"{self.time(at)}"{rest}}}\n')
        if len(lines) >= _LINES:
            self._flush()
            if sequence >= self._full:
                self.seal()

    def aside(self, verb: str, at: int, rest: str) -> None:
        """One best-effort event."""
        self._asides.append(f'"event":"{verb}","at":"{self.time(at)}"{rest}}}\n')

    def _open(self) -> None:
        self._number += 1
        self._full = self.sequence + self._segment
        path = self._directory / f"{self._node}-0-{self._number:010d}.jsonl.gz"
        self._file = path.open("wb")
        self._packer = zlib.compressobj(1, wbits=_GZIP)

    def _flush(self) -> None:
        if self._file is not None:
            self._file.write(self._packer.compress("".join(self._lines).encode()))
        self._lines.clear()

    def seal(self) -> None:
        """Close the segment; the next event opens another."""
        if self._file is not None:
            self._flush()
            self._file.write(self._packer.flush())
            self._file.close()
            self._file = None

    def seal_asides(self, at: int) -> None:
        """Write the best-effort events that there are, in a file of this time."""
        if self._asides:
            head = f"{self._head}b{at}-"
            text = "".join(f'{head}{n}",{rest}' for n, rest in enumerate(self._asides, 1))
            packer = zlib.compressobj(1, wbits=_GZIP)
            path = self._directory / f"{self._node}-0-b{at:013d}.jsonl.gz"
            path.write_bytes(packer.compress(text.encode()) + packer.flush())
            self._asides.clear()
