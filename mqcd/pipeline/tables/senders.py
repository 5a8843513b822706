"""`senders`: what each sender gave us and what became of it, by UTC hour of the event."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import ATTEMPT_ENDS, Verb
from mqcd.pipeline.tables.times import day_of, hour_of

_COUNTED = (Verb.ACCEPTED, *ATTEMPT_ENDS)


def senders(events: DataFrame, _refused: DataFrame | None = None) -> DataFrame:
    """A row for each hour and sender; "" is the null sender. Counts are of recipients."""
    selected = events.where(
        F.col("event").isin(*(verb.value for verb in _COUNTED)) & F.col("sender").isNotNull()
    ).withColumn("hour", hour_of(F.unix_millis("at")))
    accepted = F.col("event") == Verb.ACCEPTED.value
    return (
        selected.groupBy("hour", "sender")
        .agg(
            *(F.count_if(F.col("event") == verb.value).alias(verb.value) for verb in _COUNTED),
            F.count_if(accepted & (F.col("qid") == 1)).alias("messages"),
            F.sum(F.when(accepted, F.col("size")).otherwise(F.lit(0))).alias("octets"),
        )
        .withColumn("sender_domain", F.lower(F.substring_index("sender", "@", -1)))
        .withColumn("day", day_of(F.unix_millis("hour")))
    )
