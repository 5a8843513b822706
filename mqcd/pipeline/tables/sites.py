"""`sites`: how each site took mail, by UTC hour of the attempt."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import ATTEMPT_ENDS, Verb
from mqcd.pipeline.tables.replies import refusals
from mqcd.pipeline.tables.times import day_of, hour_of

TOP = 3
"""Replies that are kept of a site and hour."""


def sites(events: DataFrame, refused: DataFrame | None = None) -> DataFrame:
    """A row for each hour and site; times in ms, rates and shares from 0 to 1.

    `refused`: the `refusals` of the events, if at hand.
    """
    selected = (
        events.where(F.col("event").isin(*(verb.value for verb in ATTEMPT_ENDS)))
        .withColumn("hour", hour_of(F.unix_millis("at")))
        .withColumn("site", F.coalesce("site", "destination", F.lit("")))
    )
    delivered, first = F.col("event") == Verb.DELIVERED.value, F.col("attempt") == 1
    latency = F.percentile_approx(F.when(delivered, F.col("queued_ms")), [0.5, 0.9, 0.99], F.lit(1000))
    counted = selected.groupBy("hour", "site").agg(
        F.count("*").alias("attempts"),
        *(F.count_if(F.col("event") == verb.value).alias(verb.value) for verb in ATTEMPT_ENDS),
        F.count_if(first).alias("first_attempts"),
        F.count_if(first & delivered).alias("first_delivered"),
        F.count_if(F.col("tls").isNotNull()).alias("tls"),
        F.avg("connect_ms").alias("connect_ms"),
        F.avg("attempt_ms").alias("attempt_ms"),
        latency.alias("_latency"),
    )
    rows = counted.select(
        "hour", "site", "attempts", *(verb.value for verb in ATTEMPT_ENDS),
        "first_attempts", "first_delivered",
        F.try_divide("first_delivered", "first_attempts").alias("first_attempt_rate"),
        *(F.get("_latency", F.lit(i)).alias(f"latency_p{p}_ms") for i, p in enumerate((50, 90, 99))),
        F.try_divide("tls", "attempts").alias("tls_share"),
        "connect_ms", "attempt_ms",
    )  # fmt: skip
    top = _top(refusals(events) if refused is None else refused)
    return rows.join(top, ["hour", "site"], "left").withColumn("day", day_of(F.unix_millis("hour")))


def _top(refused: DataFrame) -> DataFrame:
    """The commonest replies and all classes of a site and hour, the most frequent first."""
    # Brought together once, by what all of the sums below have in common.
    selected = refused.withColumn("site", F.coalesce("site", F.lit(""))).repartition("hour", "site")
    total = F.sum("count").alias("count")
    each = selected.groupBy("hour", "site", "class", "code", "shape").agg(total)
    shapes = F.collect_list(F.struct("count", "code", "shape"))
    kinds = each.groupBy("hour", "site", "class").agg(total, _first(shapes, TOP).alias("shapes"))
    known = F.when(F.col("class").isNotNull(), F.struct("count", "class"))
    named = F.transform(
        F.sort_array(F.collect_list(known), asc=False),
        lambda one: F.struct(one["class"].alias("class"), one["count"].alias("count")),
    )
    return kinds.groupBy("hour", "site").agg(
        _first(F.flatten(F.collect_list("shapes")), TOP).alias("replies"), named.alias("classes")
    )


def _first(rows: Column, most: int) -> Column:
    """The greatest ones, at most so many."""
    return F.slice(F.sort_array(rows, asc=False), 1, most)
