"""`recipients`: one row for each recipient of each message, from all its events so far (see `folding`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from mqcd.pipeline.tables import folding
from mqcd.pipeline.tables.folding import EVENT, LIFE, RECIPIENT, STATE
from mqcd.pipeline.tables.named import TEXT, Named


def of_events(events: DataFrame) -> DataFrame:
    """The state that each event about a recipient gives it."""
    selected = events.where(F.col("spid").isNotNull() & F.col("qid").isNotNull()).select(*EVENT)
    return selected.mapInArrow(_each(folding.of_events), from_arrow_schema(STATE))


def together(rows: DataFrame) -> DataFrame:
    """The columns that are folded; all rows of a recipient in one partition."""
    return rows.select(*STATE.names).repartition(*LIFE)


def merge(rows: DataFrame) -> DataFrame:
    """One row for each recipient."""
    return together(rows).mapInArrow(_all(folding.folded), from_arrow_schema(RECIPIENT))


def cut(column: Column | str) -> Column:
    """What of a text is brought to the driver."""
    return F.substring(column, 1, TEXT)


def spid_and_qid() -> Column:
    """A recipient's name for people: SPID/QID."""
    return F.concat_ws("/", "spid", F.col("qid").cast("string"))


def named(rows: DataFrame, due: Column, attempts: str = "attempts") -> list[Named]:
    """Some recipients, to be named to an operator; few, for they come to the driver. `due`: ms."""
    columns = (
        spid_and_qid().alias("id"),
        cut(F.coalesce("recipient", F.lit(""))).alias("recipient"),
        cut(F.coalesce("site", "destination", "domain", F.lit(""))).alias("site"),
        F.unix_millis("accepted").alias("accepted"),
        due.alias("due"),
        F.coalesce(attempts, F.lit(0)).alias("attempts"),
        "status",
        cut(F.coalesce("reply", F.lit(""))).alias("reply"),
    )
    return [Named(**row.asDict()) for row in rows.select(*columns).collect()]


Batches = Iterator[pa.RecordBatch]


def _each(work: Callable[[pa.Table], pa.Table]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield from work(pa.Table.from_batches([batch])).to_batches()

    return run


def _all(work: Callable[[pa.Table], pa.Table]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        known = list(batches)
        if known:
            yield from work(pa.Table.from_batches(known)).to_batches()

    return run
