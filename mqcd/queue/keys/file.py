"""Key files: written once, by the helper, and read by position.

An evacuation writes the keys of its segment together with those of older files that have no more, and
without those that are too old; so there are few files, and each key is rewritten a few times. Memory holds a
file's index and, where `memorybudget` has room, four octets a key: nearly every new key is known to be new
without a look at the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mqcd.core.errors import DecodeError
from mqcd.core.queueing.idempotency import NAME_OCTETS, Used
from mqcd.core.value import value
from mqcd.disk.durable import TEMP_SUFFIX, Disk, let_go
from mqcd.disk.waits import read_at
from mqcd.queue.format import keys
from mqcd.queue.format.keys import HEADER, RECORD, Index
from mqcd.queue.manifest.state import KeyFile

KEY_FILE = re.compile(r"K\d{1,18}\.(keys|tmp)")
"""Other names are strays and left alone."""
DIRECTORY = "keys"
"""Below the queue root."""
MOST = 1 << 19
"""Keys of a file that is still rewritten: a larger one only waits for its time."""
_PRINT = 4
"""Octets of a name that memory holds: those before the last."""


@value
class WriteKeys:
    """Write the keys of a segment, and of older files, into one file."""

    queue_root: Path
    segment: int
    records: bytes
    """As memory has them."""
    merged: Sequence[str]
    """Names of the older files."""
    since: int
    """Keys of before this time are left out, s."""


@dataclass(slots=True)
class Written:
    """What was written."""

    file: KeyFile | None = None
    """None = no key was young enough."""
    merged: list[str] = field(default_factory=list)
    """Older files whose keys it holds, as far as they are young enough; others could not be read."""
    bad: int = 0
    """Records that did not check, and were left out."""


def prints_of(records: bytes) -> bytes:
    """Of each record the four octets of its name that memory holds."""
    return memoryview(records).cast("I")[NAME_OCTETS // _PRINT - 1 :: RECORD // _PRINT].tobytes()


def to_merge(files: Sequence[KeyFile], new: int) -> list[KeyFile]:
    """Which files are rewritten together with so many new keys; `files` from the oldest on. Pure."""
    chosen: list[KeyFile] = []
    for file in reversed(files):
        if file.records > new or file.records + new > MOST:
            break
        chosen.append(file)
        new += file.records
    return chosen


def write_keys(disk: Disk, task: WriteKeys) -> Written:
    """Do the task. Raises OSError."""
    written = Written()
    records = [keys.sealed(each) for each in keys.split(task.records)]
    for name in task.merged:
        try:
            whole = list(keys.records_of(disk.read_file(task.queue_root / name)))
        except (OSError, DecodeError):
            # It stays listed until it is too old: it must not keep the journal from being emptied.
            continue
        written.merged.append(name)
        good = [each for each in whole if keys.sound(each)]
        written.bad += len(whole) - len(good)
        records += good
    records.sort()
    times = keys.times_of(b"".join(records))
    kept = [each for each, at in zip(records, times, strict=True) if at >= task.since]
    if not kept:
        return written
    name = f"{DIRECTORY}/K{task.segment}.keys"
    path = task.queue_root / name
    disk.mkdir(path.parent)
    temp = path.with_suffix(TEMP_SUFFIX)
    disk.write_temp(temp, keys.encode_file(kept))
    disk.rename(temp, path)
    disk.sync_dir(path.parent)
    written.file = KeyFile(name=name, records=len(kept), newest=max(times))
    return written


class OpenFile:
    """A key file that is read."""

    def __init__(self, disk: Disk, fd: int, state: KeyFile, index: Index, prints: bytes) -> None:
        self._disk = disk
        self._fd = fd
        self._index = index
        self._readers = 0
        self._closed = False
        self.state = state
        self.prints = prints
        """b"" = memory has no room for them."""

    @classmethod
    def open(cls, disk: Disk, queue_root: Path, state: KeyFile) -> OpenFile:
        """Blocks. Raises OSError, DecodeError."""
        fd = disk.open(queue_root / state.name, os.O_RDONLY)
        try:
            header = disk.pread(fd, HEADER, 0)
            records, size = keys.index_size(header)
            index = keys.decode_index(header, disk.pread(fd, size, HEADER + records * RECORD))
            made = bytearray()
            start, end = HEADER, HEADER + records * RECORD
            while start < end:
                data = disk.pread(fd, min(end - start, RECORD << 13), start)
                made += prints_of(data)
                start += len(data)
        except BaseException:
            disk.close(fd)
            raise
        return cls(disk, fd, state, index, bytes(made))

    def perhaps(self, name: bytes, top: int) -> bool:
        """Whether it may hold a name; `top` is the name's own, see `format.keys.top_of`."""
        first, last = self._index.part(top)
        prints = self.prints
        return not prints or prints.find(name[-_PRINT:], first * _PRINT, last * _PRINT) >= 0

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep it open."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            self._close_if_unused()

    async def find(self, executor: Executor, name: bytes) -> Used | None:
        """What it remembers of a name; it has to be `pinned`. Raises OSError."""
        first, last = self._index.part(keys.top_of(name))
        octets, offset = (last - first) * RECORD, HEADER + first * RECORD
        data = await read_at(self._disk, executor, self._fd, octets, offset)
        at = keys.find(data, name)
        if at < 0 or not keys.sound(data[at : at + RECORD]):
            return None
        return keys.used_at(data, at)

    def close(self) -> None:
        """Close it, once it is not pinned."""
        self._closed = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._closed and not self._readers and self._fd >= 0:
            fd, self._fd = self._fd, -1
            let_go(self._disk, fd, "a file of keys that was only read")
