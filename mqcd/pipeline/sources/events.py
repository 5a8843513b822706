"""`mqcd-events`: the event files of a directory as a data source, for batches and for streams.

    spark.read.format("mqcd-events").load(DIRECTORY)
    spark.readStream.format("mqcd-events").option("maxfiles", 100).load(DIRECTORY)

A row for each line; see `decode` for lines that cannot be read. Only closed files (`*.jsonl.gz`) are
read. Small files share a task. A file that the server removes before its task reads it gives one row,
with `damage`.

| option | |
|---|---|
| `path` | the directory |
| `names` | names of files in it, a JSON list; else all |
| `maxfiles`, `maxbytes` | streams: at most this much in a batch (but at least one file) |
| `partitionbytes` | packed octets of a task; 8 MB |
| `after` | streams: begin behind this set of files, an offset; else with all |
| `unread` | `true`: instead of lines a row for each file, with only its path, percent-encoded, in `file` |

A stream's offset is the set of files that were taken (see `segments`), so a file that appears late is
taken late and none is taken twice. It knows Trigger.AvailableNow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqcd.pipeline.sources.decode import GONE, damaged_file, read_events, unread_file
from mqcd.pipeline.sources.schema import EVENTS
from mqcd.pipeline.sources.segments import (
    PARTITION,
    EventFile,
    check_there,
    closed_files,
    grouped,
    joined,
    within,
)

if TYPE_CHECKING:
    import pyarrow as pa


class EventsSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "mqcd-events"

    def schema(self) -> StructType:
        return EVENTS

    def reader(self, schema: StructType) -> EventsReader:
        return EventsReader(self.options)

    def streamReader(self, schema: StructType) -> EventsStreamReader:  # noqa: N802
        return EventsStreamReader(self.options)


class _Reader:
    """What a batch and a stream have in common."""

    def __init__(self, options: Mapping[str, str]) -> None:
        path = options.get("path")
        if not path:
            raise ValueError("mqcd-events: no path given")
        self._directory = Path(path)
        self._bytes = int(options.get("partitionbytes", PARTITION))
        self._unread = str(options.get("unread", "")).lower() == "true"

    def _plan(self, files: Iterable[EventFile]) -> list[InputPartition]:
        """Tasks for files."""
        return [InputPartition([file.path for file in group]) for group in grouped(files, self._bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's files, a file at a time."""
        for path in map(Path, partition.value):
            yield from [unread_file(str(path))] if self._unread else _read(path)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_events(path)
    except FileNotFoundError:
        if not path.parent.is_dir():
            # This machine of the cluster does not see the directory.
            raise
        yield damaged_file(path, GONE)


class EventsReader(_Reader, DataSourceReader):
    """All files, or the named ones."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        names = options.get("names")
        self._names = None if names is None else frozenset(json.loads(names))

    def partitions(self) -> list[InputPartition]:
        """A file that was named and is gone is an error: it would be missing silently."""
        files = closed_files(self._directory)
        if self._names is not None:
            files = [file for file in files if Path(file.path).name in self._names]
            gone = self._names - {Path(file.path).name for file in files}
            if gone:
                raise FileNotFoundError(f"{self._directory}: {sorted(gone)[0]} is gone")
        return self._plan(files) or [InputPartition([])]


class EventsStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Files that were not taken yet, a batch at a time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._limit = _limit(options)
        self._after: dict[str, str] = json.loads(options.get("after", "{}"))
        self._last: dict[str, str] | None = None
        """With AvailableNow: what there was when the stream began."""

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """Nothing was taken but what the option says."""
        return self._after

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Files that come from now on are left to the next run."""
        self._last = joined({}, closed_files(self._directory))

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """What will be taken after the next batch."""
        new = closed_files(self._directory, but=start)
        if self._last is not None:
            new = list(within(new, self._last))
        return joined(start, _within(new, limit))

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """Tasks for the files that `end` has, `start` has not. Raises FileNotFoundError where the directory
        is gone or not mounted: what `end` has is not listed again."""
        files = list(within(closed_files(self._directory, but=start), end))
        if not files and end != start:
            check_there(self._directory)
        return self._plan(files)


def _limit(options: Mapping[str, str]) -> ReadLimit:
    files, octets = options.get("maxfiles"), options.get("maxbytes")
    if files is not None:
        return ReadMaxFiles(int(files))
    return ReadMaxBytes(int(octets)) if octets is not None else ReadAllAvailable()


def _within(files: list[EventFile], limit: ReadLimit) -> list[EventFile]:
    if isinstance(limit, ReadMaxFiles):
        return files[: max(1, limit.max_files)]
    if isinstance(limit, ReadMaxBytes):
        return next(iter(grouped(files, limit.max_bytes)), [])
    return files
