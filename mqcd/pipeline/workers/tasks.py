"""What Spark's tasks do in Python: read event files, fold recipients, write Parquet.

| task | is given | writes below staging | returns |
|---|---|---|---|
| `intake` | paths of event files | events, damaged lines, done recipients, `states` of others | FOUND |
| `merging` | rows of STATE, all of a recipient in one task | recipients: open, aged, done | MERGED |

`store.layout` has the names. A file's name ends in `.part` until the driver has its name
(`Staging.publish`), so what a failed task has written never counts.

Spark only hands out the work and collects a row from each task: Arrow decodes and writes an event file, and
folds the forty columns of a recipient, in a sixth of the time that Spark takes for the same rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqcd.pipeline.sources.decode import FUTURE, LATEST, read_events
from mqcd.pipeline.sources.schema import ARROW, DAMAGED, EVENT_FIELDS, NEVER
from mqcd.pipeline.sources.segments import quoted, shown
from mqcd.pipeline.store.layout import AGED, DONE, OPEN, PART, STATES, incoming
from mqcd.pipeline.tables.folding import STATE, folded, of_events
from mqcd.pipeline.workers.counting import Count

_SERIES = pa.struct(
    [
        ("node", pa.string()),
        ("shard", pa.int32()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("events", pa.int64()),
        ("hours", pa.list_(pa.int64())),
    ]
)
"""Events of one node and shard in a file: least and greatest sequence (null: best-effort events have none),
how many, and the hours since 1970 in which they happened."""
_FILE = pa.struct(
    [("name", pa.string()), ("damaged", pa.int64()), ("future", pa.int64()), ("series", pa.list_(_SERIES))]
)
"""A file that was read to its end, with the number of its damaged lines; of these, `future` are events
that did not happen in time."""
_TEXTS = pa.list_(pa.string())
FOUND = pa.schema([("files", pa.list_(_FILE)), ("gone", _TEXTS), ("days", _TEXTS), ("parts", _TEXTS)])
"""What `intake` found; `gone`: quoted paths where no file was any more, of which nothing else is said; `days`
on which the messages of all events were accepted, `parts` that it wrote."""
MERGED = pa.schema([("strangers", _TEXTS), ("parts", _TEXTS)])
"""The `parts` that `merging` wrote, and the days of `strangers`: recipients with more events than it was
given, perhaps, because their acceptance is missing or they are old."""

TOGETHER = 100_000
"""Rows that are written at a time, at least: the more, the better they pack and the faster they are read."""
_HOUR_US = 3_600_000_000


# ------------------------------------------------------------ event files


def intake(
    target: Path, *, before: int = LATEST, together: int = TOGETHER
) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    """What a task does, given the paths of files; gives a row as in FOUND, or none where there is no file.

    It holds `together` rows, and those of a file, before it writes them below `target`. Events that did not
    happen `before`, ms, are damage.
    """
    base = str(target)

    def work(names: Iterator[str]) -> Iterator[pa.RecordBatch]:
        paths = list(map(Path, names))
        if paths:
            yield pa.RecordBatch.from_pylist([_take(paths, Path(base), before, together)], schema=FOUND)

    return work


def _take(paths: Iterable[Path], base: Path, before: int, together: int) -> dict[str, Any]:
    parts, count = Parts(base), Count(base)
    waiting: list[pa.Table] = []
    files: list[dict[str, Any]] = []
    gone: list[str] = []
    days: set[str] = set()
    try:
        for path in paths:
            try:
                rows = pa.Table.from_batches(read_events(path, before), schema=ARROW)
            except FileNotFoundError:
                gone.append(quoted(str(path)))
                continue
            waiting.append(rows)
            count.add(rows.num_rows, path)
            damaged = rows.num_rows - rows["damage"].null_count
            future = pc.sum(pc.equal(rows["damage"], FUTURE), min_count=0).as_py()
            name, series = shown(path.name), _series(_good(rows))
            files.append({"name": name, "damaged": damaged, "future": future, "series": series})
            if sum(each.num_rows for each in waiting) >= together:
                days.update(_write(parts, waiting))
        days.update(_write(parts, waiting))
    finally:
        parts.close()
    return {"files": files, "gone": gone, "days": sorted(days), "parts": parts.names}


def _good(rows: pa.Table) -> pa.Table:
    damage = rows["damage"]
    return rows if damage.null_count == len(damage) else rows.filter(pc.is_null(damage))


def _series(events: pa.Table) -> list[dict[str, Any]]:
    """As _SERIES; a file has one, unless several files were joined."""
    each = events.group_by(["node", "shard"], use_threads=False).aggregate(
        [("sequence", "min"), ("sequence", "max"), ([], "count_all")]
    )
    found = []
    for row in each.to_pylist():
        these = events
        if each.num_rows > 1:
            chosen = pc.and_(pc.equal(events["node"], row["node"]), pc.equal(events["shard"], row["shard"]))
            these = events.filter(chosen)
        hours = pc.unique(pc.floor_temporal(these["at"], unit="hour").cast(pa.int64()))
        found.append(
            {
                "node": row["node"],
                "shard": row["shard"],
                "low": row["sequence_min"],
                "high": row["sequence_max"],
                "events": row["count_all"],
                "hours": [at // _HOUR_US for at in hours.to_pylist()],
            }
        )
    return found


def _write(parts: Parts, waiting: list[pa.Table]) -> list[str]:
    """All that waits; gives the days of acceptance of their messages."""
    rows = pa.concat_tables(waiting, schema=ARROW) if waiting else ARROW.empty_table()
    waiting.clear()
    events = _good(rows)
    parts.add("events", events.select(EVENT_FIELDS), events["at"].cast(pa.date32()))
    if events.num_rows < rows.num_rows:
        damaged = rows.filter(pc.is_valid(rows["damage"])).select(DAMAGED)
        parts.write(incoming("damaged", NEVER), damaged)
    # Between acceptance and end nothing is missing in files of a series that follow one another; should
    # they not, then what comes from elsewhere finds a recipient that was finished already.
    recipients = folded(of_events(events))
    is_open = recipients["open"]
    parts.write(STATES, recipients.filter(is_open).select(STATE.names))
    parts.add_recipients(recipients.filter(pc.invert(is_open)), DONE)
    return [str(day) for day in pc.unique(recipients["day"])]


# ------------------------------------------------------------ recipients


def merging(target: Path, aged: date) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does, given all that is known of some recipients, as STATE; gives a row as in MERGED.

    It writes those recipients below `target`; the messages of old ones were made before the day `aged`.
    """
    base = str(target)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known = list(batches)
        if known:
            merged = _merge(pa.Table.from_batches(known), Path(base), aged)
            yield pa.RecordBatch.from_pylist([merged], schema=MERGED)

    return work


def _merge(known: pa.Table, base: Path, aged: date) -> dict[str, Any]:
    rows = folded(known)
    old = pc.and_(rows["open"], pc.less(rows["day"], pa.scalar(aged, pa.date32())))
    young = pc.and_(rows["open"], pc.invert(old))
    # `batch.recipients._revise` looks for the same ones, in files of open recipients alone: one without
    # acceptance is always open (`folding`).
    strangers = rows.filter(pc.or_(pc.equal(rows["accepts"], 0), old))
    parts = Parts(base)
    try:
        for state, chosen in ((OPEN, young), (AGED, old), (DONE, pc.invert(rows["open"]))):
            parts.add_recipients(rows.filter(chosen), state)
    finally:
        parts.close()
    return {"strangers": [str(day) for day in pc.unique(strangers["day"])], "parts": parts.names}


# ------------------------------------------------------------ Parquet

_DIVERSE = {
    "id", "spid", "at", "due", "sequence", "queued_ms", "attempt_ms", "raw", "accepted", "first_attempt",
    "ended", "last_end", "last_event", "delivered_sequence", "last_sequence", "latency_ms",
}  # fmt: skip
"""Columns of which a dictionary would soon be full."""


class Parts:
    """The files that one task writes: one for each place below the staging directory."""

    def __init__(self, base: Path) -> None:
        self.names: list[str] = []
        """Their paths."""
        self._base = base
        self._writers: dict[str, pq.ParquetWriter] = {}

    def close(self) -> None:
        """Before this none of them can be read."""
        for writer in self._writers.values():
            writer.close()
        # The worker lives on beside Java, which needs the memory next.
        pa.default_memory_pool().release_unused()

    def add_recipients(self, rows: pa.Table, state: str) -> None:
        """Recipients that are all in one state."""
        self.add("recipients", rows.drop_columns("day"), rows["day"], state)

    def add(self, table: str, rows: pa.Table, days: pa.ChunkedArray, state: str = "") -> None:
        """Rows of a table, each with its day; `state` is that of recipients."""
        found = pc.unique(days)
        for day in found:
            these = rows if len(found) == 1 else rows.filter(pc.equal(days, day))
            self.write(incoming(table, day, state), these)

    def write(self, place: str, rows: pa.Table) -> None:
        """Rows for one place; they have the same columns each time."""
        if not rows.num_rows:
            return
        writer = self._writers.get(place)
        if writer is None:
            path = self._base / place / f"{uuid.uuid4().hex}{PART}"
            path.parent.mkdir(parents=True, exist_ok=True)
            plain = [name for name in rows.column_names if name not in _DIVERSE]
            writer = pq.ParquetWriter(path, rows.schema, use_dictionary=plain, write_statistics=True)
            self._writers[place] = writer
            self.names.append(str(path))
        writer.write_table(rows)
