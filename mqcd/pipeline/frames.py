"""Tables as frames: what they look like, how they are read and written.

A table's columns are what its function gives for no rows at all, so there is one place that says them. A
file that was written before a column existed is read with nulls there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from mqcd.core.value import value
from mqcd.pipeline.sources.decode import read_events
from mqcd.pipeline.sources.schema import DAMAGED, EVENT_FIELDS, EVENTS
from mqcd.pipeline.sources.segments import (
    PARTITION,
    EventFile,
    Sets,
    grouped,
    parse_name,
    shown,
    unquoted,
    without,
)
from mqcd.pipeline.store.layout import DAY
from mqcd.pipeline.store.store import Store
from mqcd.pipeline.tables.folding import RECIPIENT
from mqcd.pipeline.tables.ledger import ledger
from mqcd.pipeline.tables.queue_age import queue_age
from mqcd.pipeline.tables.replies import replies
from mqcd.pipeline.tables.senders import senders
from mqcd.pipeline.tables.sites import sites

EPOCH = date(1970, 1, 1)
Hourly = Callable[[DataFrame, DataFrame | None], DataFrame]
"""A table of events, and of their `refusals` if these are at hand."""
HOURLY: dict[str, Hourly] = {"sites": sites, "senders": senders, "replies": replies}
"""Tables whose rows of an hour follow from the events of that hour alone."""
TABLES = ("events", "damaged", "recipients", "ledger", *HOURLY, "queue_age")
"""All tables."""


def nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows. An empty list would be Python workers' work; these Spark leaves out of its plans."""
    nulls = [f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in schema]
    return spark.range(0).selectExpr(*nulls)


def schema_of(spark: SparkSession, table: str) -> StructType:
    """A table's columns, `day` among them. To ask the function takes some tenths of a second: once does."""
    schema = _SCHEMAS.get(table)
    if schema is None:
        schema = _SCHEMAS[table] = _with_day(_schema(spark, table))
    return schema


_SCHEMAS: dict[str, StructType] = {}


def _schema(spark: SparkSession, table: str) -> StructType:
    if table == "events":
        return StructType([field for field in EVENTS if field.name in EVENT_FIELDS])
    if table == "damaged":
        return StructType([field for field in EVENTS if field.name in DAMAGED])
    if table in HOURLY:
        return HOURLY[table](nothing(spark, EVENTS), None).schema
    if table == "recipients":
        return from_arrow_schema(RECIPIENT)
    recipients = nothing(spark, schema_of(spark, "recipients"))
    return ledger(recipients).schema if table == "ledger" else queue_age(recipients, 0, 0, 0).schema


def _with_day(schema: StructType) -> StructType:
    """The same, every field nullable, `day` last: there Spark puts the column that directories name."""
    fields = [StructField(field.name, field.dataType) for field in schema if field.name != DAY]
    return StructType([*fields, StructField(DAY, DateType())])


def read(spark: SparkSession, store: Store, table: str, days: Iterable[str] | None = None) -> DataFrame:
    """A table, or some days of it; no rows where it does not exist yet."""
    return read_files(spark, store.table(table), store.files(table, days), schema_of(spark, table))


def read_files(spark: SparkSession, base: Path, files: list[str], schema: StructType) -> DataFrame:
    """Some files of a table below `base`."""
    if not files:
        return nothing(spark, schema)
    found = reader(spark).schema(schema).option("basePath", str(base)).parquet(*files)
    return found.select(*schema.names)


def reader(spark: SparkSession) -> DataFrameReader:
    """For files that are named. Spark takes `[`, `{`, `*` and `?` in their paths for patterns unless it is
    given what its own streams say."""
    return spark.read.option("__globPaths__", "false")


def write(frame: DataFrame, target: Path, *partitions: str) -> None:
    """Into a new directory below staging; few files, whatever the number of partitions before."""
    by = partitions or (DAY,)
    frame.hint("rebalance", *by).write.mode("overwrite").partitionBy(*by).parquet(str(target))


def write_through(frame: DataFrame, target: Path, *partitions: str) -> None:
    """The same without moving rows between tasks: each writes its own files."""
    frame.write.mode("overwrite").partitionBy(*partitions).parquet(str(target))


def days_of(hours: Iterable[int]) -> list[str]:
    """The days that hours since 1970 lie in, as directories name them."""
    return [str(EPOCH + timedelta(days=day)) for day in sorted({hour // 24 for hour in hours})]


@value(kw_only=False)
class Files:
    """Event files, for tasks: each row of a frame stands for some."""

    rows: DataFrame
    paths: Callable[[pa.RecordBatch], list[str]]
    """Whose, given rows."""
    octets: int = 0
    """Of all of them as they lie on disk; 0: not known."""

    def map(
        self, work: Callable[[Iterator[str]], Iterator[pa.RecordBatch]], schema: StructType | str
    ) -> DataFrame:
        """What `work` gives for the paths of each task."""
        paths = self.paths

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(path for batch in batches for path in paths(batch))

        return self.rows.mapInArrow(run, schema)


def files_of(spark: SparkSession, files: Iterable[EventFile]) -> Files:
    """Files that the driver knows. A task has some; small ones share one."""
    files = list(files)
    groups = [[file.path for file in group] for group in grouped(files, PARTITION)]

    def paths(batch: pa.RecordBatch) -> list[str]:
        return [path for number in batch.column("id").to_pylist() for path in groups[number]]

    return Files(spark.range(0, len(groups), 1, max(1, len(groups))), paths, sum(file.size for file in files))


def files_named(frame: DataFrame, but: Sets) -> Files:
    """Files that the source `mqcd-events` names, with the option `unread`, but for the files in a set."""

    def paths(batch: pa.RecordBatch) -> list[str]:
        found = map(unquoted, batch.column("file").to_pylist())
        named = (EventFile(*parse_name(shown(Path(path).name)), path, 0) for path in found)
        return [file.path for file in without(named, but)]

    return Files(frame.select("file"), paths)


def events_in(files: Files, before: int) -> DataFrame:
    """What the files hold, as the source `mqcd-events` gives it; events that did not happen `before`, ms, are
    damage."""

    def read(paths: Iterator[str]) -> Iterator[pa.RecordBatch]:
        for path in map(Path, paths):
            yield from read_events(path, before)

    return files.map(read, EVENTS)
