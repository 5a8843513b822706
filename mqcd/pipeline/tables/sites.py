"""`sites`: how each site took mail, by UTC hour of the attempt."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import Verb
from mqcd.pipeline.tables.replies import not_taken, shape
from mqcd.pipeline.tables.times import day_of, hour_of

_VERDICTS = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
TOP = 3
"""Replies that are kept of a site and hour."""


def sites(events: DataFrame) -> DataFrame:
    """A row for each hour and site; times in ms, rates and shares from 0 to 1."""
    told = (
        events.where(F.col("event").isin(*(verb.value for verb in _VERDICTS)))
        .withColumn("hour", hour_of(F.unix_millis("at")))
        .withColumn("site", F.coalesce("site", "destination", F.lit("")))
    )
    delivered, first = F.col("event") == Verb.DELIVERED.value, F.col("attempt") == 1
    latency = F.percentile_approx(F.when(delivered, F.col("queued_ms")), [0.5, 0.9, 0.99], F.lit(1000))
    counted = told.groupBy("hour", "site").agg(
        F.count("*").alias("attempts"),
        *(F.count_if(F.col("event") == verb.value).alias(verb.value) for verb in _VERDICTS),
        F.count_if(first).alias("first_attempts"),
        F.count_if(first & delivered).alias("first_delivered"),
        F.count_if(F.col("tls").isNotNull()).alias("tls"),
        F.avg("connect_ms").alias("connect_ms"),
        F.avg("attempt_ms").alias("attempt_ms"),
        latency.alias("_latency"),
    )
    rows = counted.select(
        "hour", "site", "attempts", *(verb.value for verb in _VERDICTS), "first_attempts", "first_delivered",
        F.try_divide("first_delivered", "first_attempts").alias("first_attempt_rate"),
        *(F.get("_latency", F.lit(i)).alias(f"latency_p{p}_ms") for i, p in enumerate((50, 90, 99))),
        F.try_divide("tls", "attempts").alias("tls_share"),
        "connect_ms", "attempt_ms",
    )  # fmt: skip
    return rows.join(_top(not_taken(told)), ["hour", "site"], "left").withColumn(
        "day", day_of(F.unix_millis("hour"))
    )


def _top(told: DataFrame) -> DataFrame:
    """The commonest replies and all classes of a site and hour."""
    each = told.groupBy(
        "hour", "site", "class", "code", shape(F.coalesce("reply", F.lit(""))).alias("shape")
    ).agg(F.count("*").alias("count"))
    ranked = F.sort_array(F.collect_list(F.struct("count", "code", "shape")), asc=False)
    classes = F.collect_list(F.when(F.col("class").isNotNull(), F.struct("class", "count")))
    return each.groupBy("hour", "site").agg(
        F.slice(ranked, 1, TOP).alias("replies"), classes.alias("classes")
    )
