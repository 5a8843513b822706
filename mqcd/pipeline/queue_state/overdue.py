"""Stuck recipients: those in the queue that were due long ago and are still there, by the queue's own files.

Which they are and since when comes from the queue's files; their details from the tables, where addresses
are hashed if those of the events are.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.model import Area
from mqcd.pipeline.tables.named import Named
from mqcd.pipeline.tables.recipients import named


def overdue(homes: DataFrame, before: int) -> DataFrame:
    """Those of the queue's recipients (as the source `mqc` gives them) that were due before a time, ms.

    Held mail and failed mail that waits for its report are due at no time.
    """
    due = F.coalesce("due", "received")
    late = F.col("area").isin(Area.INCOMING.value, Area.DEFERRED.value)
    late &= due < F.timestamp_millis(F.lit(before))
    return homes.where(late).select(
        "spid", "qid", F.unix_millis(due).alias("overdue"), F.col("attempts").alias("tried")
    )


def listed(late: DataFrame, recipients: DataFrame, most: int) -> list[Named]:
    """The first `most` of them, the longest first. `recipients`: with `queued`, see `with_homes`."""
    first = late.orderBy("overdue", "spid", "qid").limit(most)
    known = recipients.where(F.col("queued") > 0)
    found = named(first.join(known, ["spid", "qid"], "left"), F.col("overdue"), "tried")
    return sorted(found, key=lambda each: (each.due or 0, each.id))
