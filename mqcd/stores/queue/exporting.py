"""Moves events from the documents of a queue to event files.

An event file appears whole and durable, under the next number; then its events leave the documents. A crash
between the two leaves events in both: the next start looks into the newest file, and drops those. So each
event is in one file, unless another node takes over in just that moment, or that file is damaged since.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from mqcd.core.errors import StoreUnavailable
from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.disk.durable import Disk, describe
from mqcd.disk.waits import in_thread
from mqcd.eventlog.files import Source, events_path, parse
from mqcd.eventlog.history import count_of_batch
from mqcd.eventlog.reading import pieces_of
from mqcd.eventlog.retention import Retain, Retention, retain
from mqcd.stores.queue.documents import Documents
from mqcd.stores.queue.edits import Edit
from mqcd.stores.queue.waiting import Key

log = logging.getLogger(__name__)

EXPORT_MS = 2000
"""How long events stay in the documents, about."""
MOST_AT_ONCE = 50_000
"""Events of one file."""
_RETAIN_MS = 3_600_000
_PACKED = 4096
"""Octets of an event file that are unpacked at a time: of a damaged one the events before are read."""
_GZIP = 31
"""zlib's `wbits` for gzip's format, with neither name nor time."""


@value
class EventFiles:
    """Where events go, and for how long they are kept."""

    directory: Path
    source: Source
    retention: Retention


class Exporter:
    """Of one run."""

    def __init__(
        self,
        documents: Documents,
        files: EventFiles,
        clock: Clock,
        disk: Disk,
        may_expire: Callable[[], bool],
    ) -> None:
        """`may_expire`: whether the wall clock can be believed; else no file goes for its age."""
        self._documents = documents
        self._may_expire = may_expire
        self.files = files
        """May be replaced, but not by ones of another source."""
        self._clock = clock
        self._disk = disk
        self._executor = ThreadPoolExecutor(1, "mqcd-events")
        self._newest: tuple[int, set[bytes]] = 0, set()
        """The number of the newest file, and the events that are in a file and still in the documents."""
        self._next = clock.monotonic()
        """When old files are looked for again."""

    async def start(self) -> None:
        """Look at the files that there are. Raises StoreUnavailable; it is closed then."""
        try:
            await in_thread(self._executor, self._disk.mkdir, self.files.directory)
            number, lines = await in_thread(self._executor, newest_file, self._disk, self.files)
        except BaseException as error:
            self._executor.shutdown()
            if isinstance(error, OSError):
                raise StoreUnavailable(f"the event files cannot be read: {describe(error)}") from error
            raise
        self._newest = number, set(lines)

    def state(self) -> tuple[int, Sequence[bytes]]:
        """The number of the newest event file, and the events that are in none."""
        number, written = self._newest
        return number, [line for line in self._documents.unexported.values() if line not in written]

    async def changed_by(self, batch: str, since: int) -> int:
        """How many recipients a batch has changed that was asked for then, ms. Raises OSError."""
        directory, shard = self.files.directory, self.files.source.shard
        # What is exported meanwhile is in both, and counts once.
        return await in_thread(
            self._executor, count_of_batch, Disk(), directory, shard, batch, since, self.state()[1]
        )

    async def run(self) -> None:
        """Export every `EXPORT_MS`, without end."""
        while True:
            await self._clock.sleep(EXPORT_MS)
            try:
                await self.export()
                await self._retain()
            except (OSError, StoreUnavailable) as error:
                why = describe(error) if isinstance(error, OSError) else error
                log.warning("events cannot be exported, will try again: %s", why)

    async def export(self) -> None:
        """Export what there is. Raises OSError, StoreUnavailable."""
        while unexported := dict(islice(self._documents.unexported.items(), MOST_AT_ONCE)):
            written = [key for key, line in unexported.items() if line in self._newest[1]]
            if not written:
                await in_thread(self._executor, self._write, list(unexported.values()))
                written = list(unexported)
            # Before the next file: a start knows the events of the newest one alone.
            await self._drop(written)
            self._newest[1].difference_update(unexported[key] for key in written)

    def _write(self, lines: Sequence[bytes]) -> None:
        """In the thread: the next file. It counts as written also for a caller that was cancelled."""
        number = max(self._newest[0] + 1, self._clock.now() // 1000)
        path = events_path(self.files.directory, self.files.source, number)
        self._disk.replace_file(path, [_packed(sorted(lines, key=_number_of))])
        self._newest = number, self._newest[1].union(lines)

    async def _drop(self, keys: Sequence[Key]) -> None:
        there = [key for key in keys if key in self._documents.unexported]
        if there:
            await self._documents.edit(Edit(exported=there))

    async def close(self, *, export: bool) -> None:
        """Export what is left, if that can be; `run` has ended. Not to be exported is what is left when the
        documents are not all known: events of the newest file may be in others."""
        try:
            if export:
                await self.export()
        except (OSError, StoreUnavailable) as error:
            log.warning("events are left for the next start: %s", error)
        finally:
            self._executor.shutdown()

    async def _retain(self) -> None:
        """Remove old files."""
        now, retention = self._clock.monotonic(), self.files.retention
        if not (retention.maxage or retention.maxsize) or now < self._next:
            return
        self._next = now + _RETAIN_MS
        aged = retention.maxage and self._may_expire()
        task = Retain(
            directory=self.files.directory,
            source=self.files.source,
            first_live=self._newest[0],
            before=self._clock.now() - retention.maxage if aged else 0,
            maxsize=retention.maxsize,
        )
        done = await in_thread(self._executor, retain, self._disk, task)
        for failure in done.failures:
            log.warning("an event file cannot be removed: %s", failure)


def newest_file(disk: Disk, files: EventFiles) -> tuple[int, Sequence[bytes]]:
    """The number of the newest event file of a source, and its events; 0 where there is none.

    One that is damaged is logged, and its events are those before the damage. Raises OSError.
    """
    found = (parse(name) for name in disk.names(files.directory))
    numbers = [
        each.number for each in found if each is not None and each.of(files.source) and not each.best_effort
    ]
    if not numbers:
        return 0, ()
    path = events_path(files.directory, files.source, max(numbers))
    text = bytearray()
    try:
        for piece in pieces_of(disk, path, _PACKED):
            text += piece
    except zlib.error as error:
        log.error("%s is damaged, some of its events may come again in the next file: %s", path, error)
    return max(numbers), bytes(text).splitlines(keepends=True)


def _packed(lines: Sequence[bytes]) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return b"".join([packer.compress(b"".join(lines)), packer.flush()])


def _number_of(line: bytes) -> int:
    """The last part of an event's id, which the line begins with."""
    return int(line.split(b'"', 6)[5].rpartition(b"/")[2])
