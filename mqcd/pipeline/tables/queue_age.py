"""`queue_age`: what waited at the end of each UTC hour, or at the moment of the batch, and for how long."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.tables.times import HOUR_MS, day_of

BUCKETS: tuple[tuple[str, int], ...] = (
    ("0-5m", 300_000),
    ("5m-1h", HOUR_MS),
    ("1h-4h", 4 * HOUR_MS),
    ("4h-1d", 24 * HOUR_MS),
    ("1d-5d", 120 * HOUR_MS),
    ("5d-", 1 << 62),
)
"""Names and upper bounds, ms."""
MOST = 60 * 24
"""Hours that one recipient is counted for at most: mail expires long before, and a clock may be wrong."""


def _hour(column: str) -> Column:
    return F.floor(F.unix_millis(column) / F.lit(HOUR_MS)).cast("long")


def queue_age(recipients: DataFrame, first: int, last: int, now: int) -> DataFrame:
    """A row for each hour from `first` to `last` (hours since 1970), node and age, where recipients waited.

    For the hour that is not over at `now`, ms, it says how old mail is then.
    """
    known = recipients.where(F.col("accepted").isNotNull())
    ended = F.when(F.col("ended").isNotNull(), _hour("ended") - 1).otherwise(F.lit(last))
    spans = known.select(
        "node", "size", F.unix_millis("accepted").alias("since"),
        F.greatest(_hour("accepted"), F.lit(first)).alias("from"),
        F.least(ended, F.lit(last), _hour("accepted") + MOST).alias("to"),
    ).where(F.col("from") <= F.col("to"))  # fmt: skip
    waiting = spans.select("node", "size", "since", F.explode(F.sequence("from", "to")).alias("at"))
    end = F.least((F.col("at") + 1) * F.lit(HOUR_MS), F.lit(now))
    # Another node's clock may be ahead of ours.
    aged = waiting.withColumn("age_ms", F.greatest(end - F.col("since"), F.lit(0)))
    bucket = F.lit(BUCKETS[-1][0])
    for name, bound in reversed(BUCKETS[:-1]):
        bucket = F.when(F.col("age_ms") < bound, F.lit(name)).otherwise(bucket)
    hour = F.timestamp_millis(F.col("at") * F.lit(HOUR_MS))
    return (
        aged.groupBy(hour.alias("hour"), "node", bucket.alias("age"))
        .agg(
            F.count("*").alias("recipients"),
            F.sum("size").alias("octets"),
            F.max("age_ms").alias("oldest_ms"),
        )
        .withColumn("day", day_of(F.unix_millis("hour")))
    )
