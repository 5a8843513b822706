"""`recipients`: one row for each recipient of each message, from all its events so far (see `folding`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.sources.schema import spark_schema
from mqcd.pipeline.tables import folding
from mqcd.pipeline.tables.folding import EVENT, LIFE, RECIPIENT, STATE


def of_events(events: DataFrame) -> DataFrame:
    """The state that each event about a recipient gives it."""
    selected = events.where(F.col("spid").isNotNull() & F.col("qid").isNotNull()).select(*EVENT)
    return selected.mapInArrow(_each(folding.of_events), spark_schema(STATE))


def together(rows: DataFrame) -> DataFrame:
    """The columns that are folded; all rows of a recipient in one partition."""
    return rows.select(*STATE.names).repartition(*LIFE)


def merge(rows: DataFrame) -> DataFrame:
    """One row for each recipient."""
    return together(rows).mapInArrow(_all(folding.folded), spark_schema(RECIPIENT))


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
