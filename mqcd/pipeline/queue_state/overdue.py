"""Stuck recipients: those in the queue that were due long ago and are still there, by the queue's own files.

Which they are and since when comes from the queue's files; their details from the tables, where addresses
are hashed if those of the events are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.model import Area

_TEXT = 500
"""Characters of a reply or an address that are brought."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stuck:
    """One of them."""

    id: str
    """SPID/QID."""
    recipient: str
    site: str
    accepted: int | None
    """Ms, like `due`."""
    due: int
    attempts: int
    status: str | None
    reply: str
    """The last one."""


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


def listed(late: DataFrame, recipients: DataFrame, most: int) -> list[Stuck]:
    """The first `most` of them, the longest first. `recipients`: with `queued`, see `with_homes`."""
    first = late.orderBy("overdue", "spid", "qid").limit(most)
    known = recipients.where(F.col("queued") > 0)
    rows = first.join(known, ["spid", "qid"], "left").select(
        F.concat_ws("/", "spid", F.col("qid").cast("string")).alias("id"),
        _cut(F.coalesce("recipient", F.lit(""))).alias("recipient"),
        _cut(F.coalesce("site", "destination", "domain", F.lit(""))).alias("site"),
        F.unix_millis("accepted").alias("accepted"),
        F.col("overdue").alias("due"),
        F.coalesce("tried", F.lit(0)).alias("attempts"),
        "status",
        _cut(F.coalesce("reply", F.lit(""))).alias("reply"),
    )
    found = [Stuck(**row.asDict()) for row in rows.collect()]
    return sorted(found, key=lambda each: (each.due, each.id))


def _cut(column: Column) -> Column:
    return F.substring(column, 1, _TEXT)
