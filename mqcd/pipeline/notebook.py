"""The tables for people: in a notebook, a script, or under spark-submit.

    from mqcd.pipeline.notebook import open_tables

    tables = open_tables("var/pipeline")
    tables["sites"].where("deferred > 10").show()
    tables.sql("SELECT site, sum(attempts) FROM sites GROUP BY site").show()

Only reads. Each call sees the tables as a batch has left them; a frame that is kept while batches go on may
come to miss files that a batch has replaced: ask for it again, or keep batches waiting:

    with tables.still():
        frame = tables["recipients"].join(tables["events"], ["spid", "qid"])
        frame.write.parquet("elsewhere")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.spark.session import session
from mqcd.pipeline.store.store import Store


class Tables:
    """The tables of one directory."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self.spark = spark
        self._store = store

    def __getitem__(self, name: str) -> DataFrame:
        """A table, whole. Raises KeyError."""
        return self.days(name)

    def days(self, name: str, days: Iterable[str] | None = None) -> DataFrame:
        """Some days of a table, YYYY-MM-DD in UTC, or all; the others are not looked at. Raises KeyError."""
        if name not in frames.TABLES:
            raise KeyError(f"{name} is none of {', '.join(frames.TABLES)}")
        with self._store.still():
            return frames.read(self.spark, self._store, name, days)

    @contextmanager
    def still(self) -> Iterator[None]:
        """While the block lasts all tables stay as they are, so that they are of the same moment; a batch
        that is done waits for the end of the block, for a minute at most. Raises OSError."""
        with self._store.still():
            yield

    def sql(self, query: str) -> DataFrame:
        """What a query gives; the tables go by their names. Raises what Spark raises."""
        with self._store.still():
            for name in frames.TABLES:
                if name in query:
                    self[name].createOrReplaceTempView(name)
        return self.spark.sql(query)

    @property
    def taken(self) -> Mapping[str, str]:
        """The event files that are in the tables: for each series the numbers of its files."""
        return self._store.last().taken


def open_tables(directory: str | Path, spark: SparkSession | None = None) -> Tables:
    """The tables below a directory, `%DIRVAR%/pipeline`; one that does not exist yet has empty tables.

    `spark`: else the session that is active, else a new one. Raises PipelineUnavailable.
    """
    return Tables(spark or session(), Store(Path(directory).absolute()))
