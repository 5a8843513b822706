"""The files of best-effort events: whole lines, in gzip, never synced.

A crash loses what was not written yet. A power cut may leave a file that is torn; the next start removes it,
and one that was not finished. Numbers grow independently of the clock, so ids never repeat; they begin with
`b` and never collide with the journal's.

Setting read: `minfree`: below it nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mqcd.core.events import SCHEMA_VERSION, Verb
from mqcd.disk.durable import TEMP_SUFFIX, Disk
from mqcd.eventlog.files import Source, best_effort_path, parse

_CHECKED_FILES = 50
"""Only the newest ones can be torn: older ones have reached the disk."""
_GZIP = 31
_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Line(NamedTuple):
    """An event that waits for its file."""

    verb: Verb
    rest: str
    """Its JSON from the verb on."""
    stands_for: int = 1
    """With those of its verb that were left out before it."""


class LossyFiles:
    """The files of one source. Its methods block, and are called one at a time."""

    def __init__(self, disk: Disk, directory: Path, source: Source, minfree: int) -> None:
        self._disk = disk
        self._directory = directory
        self._source = source
        self._minfree = minfree
        self._last = 0
        """Number of the newest file."""

    def prepare(self) -> None:
        """Go on behind the files that are there, and remove what a crash left unfinished. Raises OSError."""
        numbers = []
        ours = f"{self._source.node}-{self._source.shard}-b"
        # There may be very many of the others.
        for name in filter(lambda each: each.startswith(ours), self._disk.names(self._directory)):
            file = parse(name.removesuffix(TEMP_SUFFIX))
            if file is None:
                continue
            self._last = max(self._last, file.number)
            if name.endswith(TEMP_SUFFIX):
                self._disk.unlink(self._directory / name)
            else:
                numbers.append(file.number)
        for number in sorted(numbers)[-_CHECKED_FILES:]:
            path = best_effort_path(self._directory, self._source, number)
            if not _is_whole(self._disk.read_file(path)):
                self._disk.unlink(path)

    def write(self, lines: Sequence[Line], now: int) -> None:
        """Put events into a file; the very first is called by the time `now`, ms, and from there on they are
        counted, so that few words name many of them. Raises OSError; then there is none."""
        if self._disk.free(self._directory)[0] < self._minfree:
            raise OSError(None, "below minfree", str(self._directory))
        number = self._last = self._last + 1 if self._last else now
        head = _quoted(f"{self._source.node}/{self._source.shard}/b{number:013d}-")[:-1]
        text = "".join(
            f'{{"v":{SCHEMA_VERSION},"id":{head}{index}",{line.rest}\n' for index, line in enumerate(lines, 1)
        )
        packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        packed = [packer.compress(text.encode("utf-8", "replace")), packer.flush()]
        path = best_effort_path(self._directory, self._source, number)
        temp = path.with_name(path.name + TEMP_SUFFIX)
        self._disk.write_temp(temp, packed, sync=False)
        self._disk.rename(temp, path)


def _is_whole(packed: bytes) -> bool:
    unpacker = zlib.decompressobj(_GZIP)
    with contextlib.suppress(zlib.error):
        unpacker.decompress(packed)
        return unpacker.eof
    return False
