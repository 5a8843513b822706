"""`events` and `damaged`: each line of the event files, once."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.sources.decode import DOUBLED
from mqcd.pipeline.sources.schema import NEVER
from mqcd.pipeline.store.layout import INTO
from mqcd.pipeline.tables.times import day_of


def sorted_out(rows: DataFrame) -> DataFrame:
    """What the source gives, with the table (`INTO`) and the UTC day that each row belongs to."""
    good = F.col("damage").isNull()
    into = F.when(good, "events").otherwise("damaged")
    day = F.when(good, day_of(F.unix_millis("at")))
    columns = {INTO: into, "day": F.coalesce(day, F.lit(NEVER).cast("date"))}
    return rows.withColumns(columns)


def doubled(events: DataFrame, known: DataFrame) -> DataFrame:
    """Events whose ids may have come before, sorted out anew: an id that did is damage that says so.

    Where several have one id, the first file's stays.
    """
    order = Window.partitionBy("id").orderBy("file")
    ranked = events.withColumn("_rank", F.row_number().over(order))
    before = known.select("id", F.lit(True).alias("_before")).distinct()
    selected = ranked.join(before, ["id"], "left")
    again = (F.col("_rank") > 1) | F.col("_before").isNotNull()
    raw = F.to_json(F.struct("id", "event", "at", "spid", "qid"))
    return sorted_out(
        selected.withColumn("damage", F.when(again, F.lit(DOUBLED)))
        .withColumn("raw", F.when(again, raw))
        .drop("_rank", "_before")
    )
