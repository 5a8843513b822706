"""One batch in hand: what it reads of the tables, and how it writes some days of one anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from mqcd.pipeline import frames
from mqcd.pipeline.batch.files import RecipientFiles
from mqcd.pipeline.store.store import Commit, Store


class Work:
    """The tables as they are, and the staging directory of this batch."""

    def __init__(self, spark: SparkSession, store: Store, last: Commit, now: int) -> None:
        """`last` is the commit before it; `now`, ms, is the moment that tables of the present describe."""
        self.spark = spark
        self.store = store
        self.last = last
        self.now = now
        self.number = last.batch + 1
        self.staging = store.staging(self.number)

    def schema(self, table: str) -> StructType:
        return frames.schema_of(self.spark, table)

    def read(self, table: str, files: list[str]) -> DataFrame:
        """Some committed files of a table."""
        return frames.read_files(self.spark, self.store.table(table), files, self.schema(table))

    def came(self, table: str) -> DataFrame:
        """What came in: `events` or `damaged`."""
        return self._staged(table, self.staging.came(table))

    def _staged(self, table: str, files: list[str]) -> DataFrame:
        return frames.read_files(self.spark, self.staging.incoming(table), files, self.schema(table))

    def recipients(self, files: RecipientFiles) -> DataFrame:
        """Recipients in files. Spark must read the two trees one by one."""
        ours = self._staged("recipients", list(files.staged))
        return ours.unionByName(self.read("recipients", list(files.committed)))

    def replace(self, table: str, rows: DataFrame, keep: Column, days: Iterable[str]) -> list[str]:
        """Write some days of a table anew: `rows`, and known rows that match `keep`. Gives the committed
        files that this replaces."""
        files = self.store.files(table, days)
        if files:
            rows = rows.unionByName(self.read(table, files).where(keep))
        frames.write(rows, self.staging.anew(table))
        return files


def sizes(files: Iterable[str]) -> int:
    """Octets of files."""
    return sum(Path(file).stat().st_size for file in files)
