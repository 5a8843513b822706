"""`mqc`: the recipients that wait in a queue, read from its clusters and its journal.

    spark.read.format("mqc").load(QUEUE_ROOT)

A row for each recipient at one moment, read under a pin, with or without a running server; a copy of a
queue root does as well. Conditions on `area`, `received` (upper bounds) and `spid` are looked at before
records are decoded, those on `due` before a row is made; the areas and bounds that the MANIFEST knows of
save whole clusters from being read.

| option | |
|---|---|
| `path` | the queue root |
| `spool` | the spool root; only contents are looked for there, which this source does not read |

One task reads one queue: what it reads is one moment's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from mqcd.core.errors import DecodeError
from mqcd.core.model import Area
from mqcd.core.queueing.spid import parse_spid
from mqcd.core.selecting.selection import Selection
from mqcd.disk.durable import Disk
from mqcd.pipeline.sources.schema import TIME
from mqcd.queue.format.record import ORIGIN_OF, Fields, area_of, fields
from mqcd.queue.reading.shards import Snapshots
from mqcd.queue.reading.snapshot import Snapshot

HOMES = pa.schema(
    [
        ("spid", pa.string()),
        ("qid", pa.int32()),
        ("area", pa.string()),
        ("inflight", pa.bool_()),
        ("due", TIME),
        ("received", TIME),
        ("sender", pa.string()),
        ("recipient", pa.string()),
        ("size", pa.int64()),
        ("attempts", pa.int32()),
        ("unknowns", pa.int32()),
        ("origin", pa.string()),
        ("zone", pa.string()),
        ("listener", pa.string()),
        ("client", pa.string()),
        ("user", pa.string()),
        ("tls", pa.string()),
        ("code", pa.int32()),
        ("status", pa.string()),
        ("reply", pa.string()),
        ("remote_host", pa.string()),
    ]
)
QUEUE = from_arrow_schema(HOMES)
_ROWS = 5000
_AREAS = {area.value: area for area in Area}

Due = tuple[int, int]
"""Least and greatest due time, ms."""
Row = tuple[dict[str, object], int]
"""A recipient as HOMES has it, and its due time, ms."""
_ALWAYS: Due = (-(1 << 62), 1 << 62)


class QueueSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "mqc"

    def schema(self) -> StructType:
        return QUEUE

    def reader(self, schema: StructType) -> QueueReader:
        path = self.options.get("path")
        if not path:
            raise ValueError("mqc: no path given")
        return QueueReader(Path(path), Path(self.options.get("spool") or path))


class QueueReader(DataSourceReader):
    """Knows by then which recipients are wanted."""

    def __init__(self, queue_root: Path, spool_root: Path) -> None:
        self._roots = queue_root, spool_root
        self._selection = Selection()
        self._due = _ALWAYS
        self._never = False

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes what it can; gives the rest back."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, each: Filter) -> bool:
        match each:
            case EqualTo(attribute=("area",), value=word) if word in _AREAS:
                return self._select(area=_AREAS[word])
            case EqualTo(attribute=("spid",), value=str(text)):
                try:
                    return self._select(spid=parse_spid(text)) if text == text.upper() else False
                except DecodeError:
                    return False
            case (
                LessThan(attribute=("received",), value=datetime() as at)
                | LessThanOrEqual(attribute=("received",), value=datetime() as at)
            ):
                # Spark compares in microseconds, records have ms: it looks again.
                self._received(_ms(at) + 1)
                return False
            case LessThan(attribute=("due",), value=at) | LessThanOrEqual(attribute=("due",), value=at):
                self._due = self._due[0], min(self._due[1], _ms(at))
                return False
            case GreaterThan(attribute=("due",), value=at) | GreaterThanOrEqual(attribute=("due",), value=at):
                self._due = max(self._due[0], _ms(at)), self._due[1]
                return False
            case _:
                return False

    def _select(self, *, area: Area | None = None, spid: int | None = None) -> bool:
        now = self._selection
        for wanted, had in ((area, now.area), (spid, now.spid)):
            if wanted is not None and had is not None and wanted != had:
                self._never = True
        self._selection = replace(now, area=area or now.area, spid=now.spid if spid is None else spid)
        return True

    def _received(self, before: int) -> None:
        now = self._selection.received_before
        self._selection = replace(
            self._selection, received_before=before if now is None else min(now, before)
        )

    def partitions(self) -> list[InputPartition]:
        """One: what is read is one moment's."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a worker. Raises StoreBusy, StoreDamaged, StoreUnavailable."""
        if self._never:
            return
        snapshot = Snapshots(Disk(), *self._roots)
        try:
            yield from homes(snapshot, self._selection, self._due)
        finally:
            snapshot.close()


def homes(
    snapshot: Snapshot | Snapshots, selection: Selection, due: Due = _ALWAYS
) -> Iterator[pa.RecordBatch]:
    """The recipients of a snapshot as Arrow batches. Raises StoreBusy, OSError."""
    yield from packed(snapshot.project(selection, row), due)
    if (error := snapshot.unreadable.error) is not None:
        raise error


def packed(batches: Iterable[Iterable[Row]], due: Due = _ALWAYS) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches, of records that are due within these bounds."""
    least, greatest = due
    rows: list[dict[str, object]] = []
    for batch in batches:
        for fields_of, at in batch:
            if least <= at <= greatest:
                rows.append(fields_of)
        if len(rows) >= _ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema=HOMES)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=HOMES)


def row(text: str, begun: bool) -> Row:
    """A row and its due time, ms. Raises DecodeError."""
    each: Fields = fields(text)
    try:
        due = int(each.due)
        return {
            "spid": each.spid,
            "qid": int(each.qid),
            "area": str(area_of(each.area)),
            "inflight": begun,
            "due": _time(due) if due else None,
            "received": _time(int(each.received)),
            "sender": each.sender,
            "recipient": each.address,
            "size": int(each.size),
            "attempts": int(each.attempts),
            "unknowns": int(each.unknowns),
            "origin": str(ORIGIN_OF[each.origin]),
            "zone": each.zone or None,
            "listener": each.listener or None,
            "client": each.client or None,
            "user": each.user or None,
            "tls": each.tls or None,
            "code": int(each.code) or None,
            "status": each.status or None,
            "reply": each.reply or None,
            "remote_host": each.remote.split(" ", 1)[0] or None,
        }, due
    except (ValueError, KeyError, OverflowError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(at: datetime) -> int:
    """Spark gives times without a zone in local time of the process, else with one."""
    return int(at.timestamp() * 1000)
