"""The sites that need attention first, because mail to them does not arrive. From `recipients`.

What counts is what became of recipients, not how often they were tried: a site that greylists and then takes
its mail keeps nothing. Waiting counts from the second deferral on, and at once where the reply does not say
that it passes by itself.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.report.figures import Listing, Reply, Troubled
from mqcd.pipeline.tables.recipients import cut
from mqcd.pipeline.tables.replies import shape, suggested

_MOST = 10


def troubled(recipients: DataFrame, before: DataFrame | None) -> Listing[Troubled]:
    """The worst sites of a period's recipients; `before`: recipients of the period before it, None where
    nothing is known of that."""
    selected = _counted(recipients).where(F.col("lost") + F.col("waiting") > 0).persist()
    try:
        total = selected.count()
        if not total:
            return Listing()
        worst = selected.orderBy((F.col("lost") + F.col("waiting")).desc(), "site").limit(_MOST)
        rows = worst.collect()
    finally:
        selected.unpersist()
    earlier = {}
    if before is not None:
        names = [row["site"] for row in rows]
        known = _counted(before.where(_site().isin(names)))
        earlier = {row["site"]: (row["lost"] + row["waiting"], row["all"]) for row in known.collect()}
    return Listing(
        rows=tuple(
            Troubled(
                site=row["site"],
                lost=row["lost"],
                waiting=row["waiting"],
                recipients=row["all"],
                before=None if before is None else earlier.get(row["site"], (0, 0)),
                cause=row["cause"],
                last=Reply(**row["last"].asDict()),
            )
            for row in rows
        ),
        total=total,
    )


def _site() -> Column:
    return cut(F.coalesce("site", "destination", "domain", F.lit("")))


def _counted(recipients: DataFrame) -> DataFrame:
    """By site, with the commonest cause and the newest reply of what it kept."""
    named = F.when(F.col("reply").isNotNull(), suggested(shape(F.col("reply"))))
    cause = F.when(named.isNull() | (named == "other"), F.coalesce("class", F.lit("other"))).otherwise(named)
    lost = F.col("outcome").isin("bounced", "expired")
    put_off = (F.col("outcome") == "queued") & (F.col("deferrals") > 0)
    rows = recipients.select(
        _site().alias("site"), "deferrals", "code", "status", cut("reply").alias("reply"),
        F.coalesce(F.unix_millis("last_event"), F.lit(0)).alias("at"),
        lost.alias("lost"), put_off.alias("put_off"), F.when(lost | put_off, cause).alias("cause"),
    )  # fmt: skip
    waiting = F.col("put_off") & ((F.col("deferrals") > 1) | (F.col("cause") != "greylisted"))
    kept = F.col("lost") | waiting
    said = F.struct("at", "code", "status", F.coalesce("reply", F.lit("")).alias("text"))
    return rows.groupBy("site").agg(
        F.count("*").alias("all"),
        F.count_if("lost").alias("lost"),
        F.count_if(waiting).alias("waiting"),
        F.mode(F.when(kept, F.col("cause"))).alias("cause"),
        F.max(F.when(kept, said)).alias("last"),
    )
