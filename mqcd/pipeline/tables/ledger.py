"""`ledger`: whether accepted = delivered + bounced + expired + removed + still here, by node and hour.

What is still here is never derived from events: it is what the queue's own files say (`with_homes`).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.pipeline.tables.folding import ENDS, KEY, LIFE

HOMES = ("queued", "quarantined")


def with_homes(recipients: DataFrame, homes: DataFrame) -> DataFrame:
    """Recipients with how often each lies in the queue, in its quarantine, and waits for its report
    (`queued`, `quarantined`, `waiting` of `homes`); recipients that only the queue knows come with it."""
    places = (*HOMES, "waiting")
    here = (
        _under_their_nodes(homes, recipients).groupBy(*KEY).agg(*(F.sum(name).alias(name) for name in places))
    )
    joined = recipients.join(here, list(KEY), "full")
    counts = {name: F.coalesce(name, F.lit(0)) for name in ("accepts", *ENDS, "unknowns", *places)}
    doubts = {name: F.coalesce(name, F.lit(False)) for name in ("duplicate", "possible_duplicate")}
    return joined.withColumns(counts | doubts)


def _under_their_nodes(homes: DataFrame, recipients: DataFrame) -> DataFrame:
    """Homes with the node of the acceptance: a node may have been given another name since."""
    waits = F.when(F.col("open") & (F.col("accepts") > 0), F.col("node"))
    near = recipients.join(homes.select(*LIFE).distinct(), list(LIFE), "left_semi")
    names = near.groupBy(*LIFE).agg(
        F.collect_set("node").alias("_nodes"), F.min(waits).alias("_one"), F.max(waits).alias("_other")
    )
    other = F.when(F.col("_one") == F.col("_other"), F.col("_one"))
    named = F.when(F.array_contains("_nodes", F.col("node")), F.col("node")).otherwise(other)
    return homes.join(names, list(LIFE), "left").withColumn("node", F.coalesce(named, "node"))


def off_balance(recipients: DataFrame) -> DataFrame:
    """Recipients whose account is not even; `excess` is acceptances less ends and homes.

    An event that came twice cannot hide one that is missing: each recipient has its own account.
    """
    places = sum((F.col(name) for name in (*ENDS, *HOMES)), F.lit(0))
    return recipients.withColumn("excess", F.col("accepts") - places).where(F.col("excess") != 0)


def ledger(recipients: DataFrame) -> DataFrame:
    """A row for each node and hour of acceptance.

    `unfinished` are those without an end, by events; `queued` and `quarantined` come from `with_homes`,
    without which they and `imbalance` are not known.
    """
    known = [name for name in HOMES if name in recipients.columns]
    ends = sum((F.col(name) for name in ENDS), F.lit(0))
    counted = recipients.groupBy("day", "hour", "node").agg(
        F.sum("accepts").alias("accepted"),
        *(F.sum(name).alias(name) for name in (*ENDS, *known)),
        F.sum("unknowns").alias("unknown"),
        F.count_if(F.col("duplicate")).alias("duplicates"),
        F.count_if(F.col("possible_duplicate")).alias("possible_duplicates"),
        F.count_if(ends == 0).alias("unfinished"),
        F.sum(F.abs(F.col("accepts") - ends - sum((F.col(n) for n in known), F.lit(0)))).alias("_off"),
    )
    for name in HOMES:
        if name not in known:
            counted = counted.withColumn(name, F.lit(None).cast("long"))
    off = F.col("_off") if known else F.lit(None).cast("long")
    return counted.withColumn("imbalance", off).drop("_off")
