"""Reads event files of transitions: by shard and number, unpacked a piece at a time, line by line."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from mqcd.disk.durable import Disk
from mqcd.eventlog.files import parse

_UNPACKED = 1 << 20
"""Octets that are unpacked at a time."""
_GZIP = 31

Series = list[tuple[int, Path]]
"""Event files of one shard by number."""


def series_of(disk: Disk, directory: Path) -> dict[tuple[str, int], Series]:
    """The files of transitions, by node and shard."""
    series: dict[tuple[str, int], Series] = {}
    for name in disk.names(directory) if disk.is_dir(directory) else ():
        file = parse(name)
        if file is not None and not file.best_effort:
            series.setdefault((file.node, file.shard), []).append((file.number, directory / name))
    for files in series.values():
        files.sort()
    return series


def pieces_of(disk: Disk, path: Path, octets: int) -> Iterator[bytes]:
    """A file's text in pieces, made of so many packed octets each. Raises OSError, zlib.error."""
    unpacker = zlib.decompressobj(_GZIP)
    fd = disk.open(path, os.O_RDONLY)
    try:
        offset = 0
        while packed := disk.pread(fd, octets, offset):
            offset += len(packed)
            while packed:
                yield unpacker.decompress(packed, _UNPACKED)
                packed = unpacker.unconsumed_tail
        if not unpacker.eof:
            raise zlib.error("the file is cut off")
    finally:
        disk.close(fd)


def lines_with(pieces: Iterable[bytes], needle: bytes) -> Iterator[bytes]:
    """The lines that hold the needle."""
    rest = b""
    for piece in pieces:
        whole, _, rest = (rest + piece).rpartition(b"\n")
        at = whole.find(needle)
        while at >= 0:
            start = whole.rfind(b"\n", 0, at) + 1
            end = whole.find(b"\n", at)
            line = whole[start : end if end >= 0 else len(whole)]
            if line:
                yield line
            at = whole.find(needle, start + len(line) + 1)
