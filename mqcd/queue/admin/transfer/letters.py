"""Mail on its way into a queue, from any source, and what a reader of such mail finds."""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISLNK
from typing import Any

from mqcd.core.model import Envelope, Recipient
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.queue.admin.findings import Kind, Problem

_BARE = re.compile(rb"\r+\n|\r")
_CHUNK = 1 << 18


@value
class Letter:
    """A message to be taken in. SPID, size and, unless it says 8BITMIME, body type are still to be set."""

    octets: int
    """How long the file of its content is."""
    envelope: Envelope
    recipients: tuple[Recipient, ...]
    keys: tuple[str, ...]
    """For each recipient 24 hex digits that say which it is: what was brought once is not brought again."""
    several: bool
    """It had several recipients when it was accepted."""
    spid: int = 0
    """The one that it keeps, with size and content as they are; 0 = it gets one."""
    content: Callable[[], Iterator[bytes]]
    """Gives its octets in chunks, each time anew. Raises OSError."""


class Letters(Sequence[Letter]):
    """Letters that are made anew each time they are asked for: there may be a million."""

    def __init__(self, make: Callable[[int], Letter]) -> None:
        """`make` is given one of `tokens`."""
        self._make = make
        self.tokens = array("Q")

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: Any) -> Any:
        """One letter; slices are not needed."""
        return self._make(self.tokens[index])


@dataclass(slots=True)
class Tree:
    """All that was found."""

    found: int = 0
    """Record lines that are not done."""
    skipped: int = 0
    """Lines of `found` that an earlier import has brought, or that repeat another."""
    damaged: int = 0
    """Lines of `found` that cannot be taken over; each is among the problems."""
    letters: Sequence[Letter] = ()
    recipients: int = 0
    """Of all letters."""
    octets: int = 0
    """Of their contents."""
    problems: list[Problem] = field(default_factory=list)


def key_of(*parts: object) -> str:
    """24 hex digits that say which recipient of which message this is."""
    return hashlib.sha256("|".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:24]


def size_of(disk: Disk, path: Path) -> int:
    """Octets of a file that can be opened. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        disk.pread(fd, 1, 0)
        return disk.size(fd)
    finally:
        disk.close(fd)


def files_below(disk: Disk, directory: Path, problems: list[Problem]) -> Iterator[Path]:
    """Every file below a directory, each directory's in order before those of the next.

    A symbolic link is listed and not followed: it may lead back here, or to what only root may read.
    Raises OSError when a directory cannot be read: what it holds is unknown.
    """
    waiting = [directory]
    while waiting:
        here = waiting.pop()
        below: list[Path] = []
        for name in disk.names(here):
            path = here / name
            mode = path.lstat().st_mode
            if S_ISDIR(mode):
                below.append(path)
            elif S_ISLNK(mode):
                problems.append(Problem(Kind.STRAY, path, None, "is a symbolic link; left out"))
            else:
                yield path
        waiting += reversed(below)


def with_crlf(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The octets with CRLF for each bare CR and each bare LF, without NULs, however they are cut; no chunk
    is empty.

    What is sent on must not hold a line end that only some servers take for one (RFC 5321, 2.3.8): behind it
    they would read commands. CRs before a CRLF belong to it. At a NUL others cut a line; the door refuses it.
    """
    held = b""
    for chunk in chunks:
        data = held + chunk.replace(b"\0", b"")
        whole = data.rstrip(b"\r")
        held = data[len(whole) :]
        if whole:
            lines = whole.replace(b"\r\n", b"\n")
            if b"\r" in lines:
                lines = _BARE.sub(b"\n", lines)
            yield lines.replace(b"\n", b"\r\n")
    if held:
        yield b"\r\n" * len(held)


def chunks_of(disk: Disk, path: Path, offset: int = 0) -> Iterator[bytes]:
    """A file's octets from `offset` on. Raises OSError."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        while data := disk.pread(fd, _CHUNK, offset):
            yield data
            offset += len(data)
    finally:
        disk.close(fd)
