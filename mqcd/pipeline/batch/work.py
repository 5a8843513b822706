"""One batch in hand: what it reads of the tables, what it has made, and which files it replaces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from mqcd.pipeline import frames
from mqcd.pipeline.store.layout import below
from mqcd.pipeline.store.store import Commit, Store


class Work:
    """The tables as they are, and as this batch will leave them."""

    def __init__(self, spark: SparkSession, store: Store, last: Commit, now: int) -> None:
        """`last` is the commit before it; `now`, ms, is the moment that tables of the present describe."""
        self.spark = spark
        self.store = store
        self.last = last
        self.now = now
        self.number = last.batch + 1
        self.staging = store.staging(self.number)
        self.replaced: list[str] = []
        """Paths below the root of files that the commit removes."""

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

    def recipients(self, files: Iterable[str]) -> DataFrame:
        """Recipients in files of this batch and of others. Spark must read the two trees one by one."""
        wanted, made = set(files), set(self.staging.came("recipients"))
        ours = self._staged("recipients", sorted(wanted & made))
        return ours.unionByName(self.read("recipients", sorted(wanted - made)))

    def staying(self, table: str, days: Iterable[str] | None = None) -> list[str]:
        """Committed files of a table that this batch does not replace, so far."""
        gone = set(self.replaced)
        files = self.store.files(table, days)
        return [
            file for file, name in zip(files, below(self.store.root, files), strict=True) if name not in gone
        ]

    def remove(self, files: Iterable[str]) -> None:
        """Leave files out of the tables: staged ones go at once, committed ones by the commit."""
        for file in files:
            if Path(file).is_relative_to(self.staging.path):
                Path(file).unlink()
            else:
                self.replaced += below(self.store.root, [file])

    def replace(self, table: str, rows: DataFrame, keep: Column, days: Iterable[str]) -> None:
        """Write some days of a table anew: `rows`, and known rows that match `keep`."""
        files = self.store.files(table, days)
        if files:
            rows = rows.unionByName(self.read(table, files).where(keep))
        frames.write(rows, self.staging.anew(table))
        self.remove(files)


def sizes(files: Iterable[str]) -> int:
    """Octets of files."""
    return sum(Path(file).stat().st_size for file in files)
