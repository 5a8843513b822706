"""How hard sites were pressed when they asked for less, from `events`: histograms, a few hundred rows a site.

Each node counts for itself, since that is how sites count: by address. What is compared are attempts that a
site took up with those that it put off by a reply that asks for less, against the connections there were at
that moment, and minutes and hours in which it did so with those in which it did not, against the recipients
it took.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import ATTEMPT_ENDS, Verb
from mqcd.pipeline.advice.decisions import HOUR, MINUTE, Rules
from mqcd.pipeline.tables.replies import words_of
from mqcd.pipeline.tables.times import DAY_MS

_WORDS = (
    r"too many (connections|concurrent|messages|sessions|recipients|simultaneous)|\brate\b.{0,20}\blimit"
    r"|ratelimit|throttl|slow down|too (fast|quickly)|connection limit"
    r"|exceeded .{0,30}(rate|connections|messages)"
)
_OF_CONNECTIONS = r"connection|concurrent|simultaneous|session"
_OF_RATE = r"\brate\b|messages|slow down|fast|quickly|recipients|per (second|minute|hour)"
_GREYLISTING = r"gr[ae]y.?list"
TAKEN_UP = ("mail", "rcpt", "data", "dot")
"""Phases of a transaction: the site had a connection for it."""
_MOST = 2000
"""Values of a histogram above this are counted with it."""
_BUCKETS = {"minutes": MINUTE, "hours": HOUR}


def asks_for_less() -> Column:
    """Whether a verdict's reply is one of throttling: by its words, or 421 4.7.x; greylisting is none."""
    words = words_of(F.col("reply"))
    status = F.coalesce("status", F.lit(""))
    code = (F.col("code") == 421) & status.startswith("4.7.")
    put_off = F.col("event").isin(Verb.DEFERRED.value, Verb.EXPIRED.value) & F.col("code").between(400, 499)
    by_them = ~F.col("phase").isin("route", "connect")
    said = (code | (status == "4.7.28") | words.rlike(_WORDS)) & ~words.rlike(_GREYLISTING)
    return F.coalesce(put_off & by_them & said, F.lit(False))


def attempts(events: DataFrame, since: int) -> DataFrame:
    """Verdicts of sites from `since`, ms: when each attempt began and ended, and whether it was `off`."""
    selected = events.where(
        F.col("event").isin(*(verb.value for verb in ATTEMPT_ENDS))
        & F.col("site").isNotNull()
        & (F.col("at") >= F.timestamp_millis(F.lit(since)))
    )
    end = F.unix_millis("at")
    start = end - F.coalesce("attempt_ms", F.lit(0)) - F.coalesce("connect_ms", F.lit(0))
    rows = selected.select(
        "site", F.concat_ws("/", "node", "shard", "zone").alias("source"), start.alias("start"),
        F.greatest(end, start + 1).alias("end"), asks_for_less().alias("off"),
        "phase", "code", "status", "reply",
    )  # fmt: skip
    return rows.withColumn("taken", ~F.col("off") & F.col("phase").isin(*TAKEN_UP))


def pressed(tried: DataFrame, rules: Rules) -> DataFrame:
    """The sites that asked for less: `site`, `replies`, `last` (ms), the last one as `said`; the worst first.

    `of_connections` and `of_rate`: how many of the replies speak of the one and not of the other.
    """
    words = words_of(F.col("reply"))
    connections, rate = words.rlike(_OF_CONNECTIONS), words.rlike(_OF_RATE)
    found = (
        tried.where("off")
        .groupBy("site")
        .agg(
            F.count("*").alias("replies"),
            F.count_if(connections & ~rate).alias("of_connections"),
            F.count_if(rate & ~connections).alias("of_rate"),
            F.max("start").alias("last"),
            F.max(F.struct("start", "code", "status", F.substring("reply", 1, 200).alias("reply"))).alias(
                "said"
            ),
        )
    )
    return found.orderBy(F.desc("replies"), "site").limit(rules.sites)


def histograms(tried: DataFrame) -> DataFrame:
    """Rows of `site`, `measure` (`connections`, `minutes`, `hours`), `value`, and counts `calm` and `off`."""
    found = _connections(tried)
    for measure, span in _BUCKETS.items():
        found = found.unionByName(_periods(tried, measure, span))
    return found


def _connections(tried: DataFrame) -> DataFrame:
    """At each attempt, how many others were under way."""
    zero = F.lit(0)
    begins = F.struct(F.col("start").alias("at"), F.lit(1).alias("order"), F.lit(1).alias("step"))
    ends = F.struct(F.col("end").alias("at"), zero.alias("order"), F.lit(-1).alias("step"))
    marks = tried.select(
        "site", "source", "off", "taken", F.floor(F.col("start") / F.lit(DAY_MS)).alias("day"),
        F.inline(F.array(begins, ends)),
    )  # fmt: skip
    # Days keep what one task has to sort small; attempts under way at midnight are missed.
    before = Window.partitionBy("site", "source", "day").orderBy("at", "order").rowsBetween(
        Window.unboundedPreceding, -1
    )  # fmt: skip
    others = marks.withColumn("value", F.coalesce(F.sum("step").over(before), zero))
    asked = others.where((F.col("order") == 1) & (F.col("off") | F.col("taken")))
    return _counted(asked, "connections")


def _periods(tried: DataFrame, measure: str, span: int) -> DataFrame:
    """In each minute or hour, how many were taken up, and whether any was put off."""
    periods = tried.groupBy("site", "source", F.floor(F.col("start") / F.lit(span)).alias("period")).agg(
        F.count_if("taken").alias("value"), F.max("off").alias("off")
    )
    return _counted(periods.where((F.col("value") > 0) | F.col("off")), measure)


def _counted(rows: DataFrame, measure: str) -> DataFrame:
    return rows.groupBy(
        "site", F.lit(measure).alias("measure"), F.least("value", F.lit(_MOST)).cast("long").alias("value")
    ).agg(F.count_if(~F.col("off")).alias("calm"), F.count_if("off").alias("off"))
