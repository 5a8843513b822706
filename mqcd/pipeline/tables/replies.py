"""`replies`: what other servers say when they do not take mail, clustered by shape, with a suggested class.

A shape is a reply without what differs from message to message: addresses, hosts, numbers and ids.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import NOT_DELIVERED
from mqcd.pipeline.tables.times import day_of, hour_of

_SHAPES: tuple[tuple[str, str], ...] = (
    (r"https?://\S+", "URL"),
    (r"<?[^\s<>()@,;:]+@[^\s<>()@,;:]+>?", "ADDRESS"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7}\b", "IP"),
    (r"\b(?=[\w-]*[A-Za-z])[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b", "HOST"),
    (r"\b(?=[\w.-]*\d)[\w-]{6,}(?:[.-]\w+)*\b", "ID"),
    (r"(?<![\w.])\d+(?![\w.]*\.\d)\b", "N"),
)
"""In this order. Enhanced status codes (4.2.1) are none of these and stay."""

CLASSES: tuple[tuple[str, str], ...] = (
    ("greylisted", r"gr[ae]y.?list"),
    (
        "throttled",
        r"too many|\brate\b|throttl|^(?!.*\bsize\b).*\blimit|slow down|exceeded.*(connection|message)",
    ),
    ("blocked", r"block|black.?list|reputation|spam|policy|dnsbl|rbl|not allowed|denied"),
    ("mailbox-full", r"quota|mailbox (is )?full|over.?quota|insufficient storage"),
    (
        "no-such-user",
        r"(no such|unknown|invalid) (user|recipient|mailbox|address)|user unknown|does not exist",
    ),
    ("no-such-domain", r"domain (not found|unknown)|no such (host|domain)|nxdomain|host unknown"),
    ("relay-denied", r"relay"),
    ("content", r"content|virus|message (rejected|refused)|attachment|too (large|big)|size"),
    ("connection", r"connection|timed? ?out|timeout|refused|reset|unreachable|tls|certificate"),
    # Last, for many say so of whatever they have just named.
    ("greylisted", r"try again (in|later)|temporarily deferred"),
)
"""Suggested class, and what the reply says; the first that fits."""
LONGEST = 200
"""Characters of a reply to look at: strangers choose it, and patterns may take the square of its length."""


def refusals(events: DataFrame) -> DataFrame:
    """Verdicts that are no delivery, those of an hour that are alike in one row with `count` and `shape`.

    Both `replies` and `sites` are made of them, and shapes are most of the work: a batch keeps them.
    """
    hour = hour_of(F.unix_millis("at"))
    site = F.coalesce("site", "destination")
    selected = events.where(F.col("event").isin(*(verb.value for verb in NOT_DELIVERED))).select(
        hour.alias("hour"), site.alias("site"), "event", "code", "status", "phase", "class", "reply"
    )
    alike = selected.groupBy(*selected.columns).agg(F.count("*").alias("count"))
    return alike.withColumn("shape", shape(F.coalesce("reply", F.lit(""))))


def shape(reply: Column) -> Column:
    """A reply without what differs from message to message."""
    first = F.substring(reply, 1, LONGEST)
    # Of an address that is cut in two half would stay, another one in each reply.
    reply = F.when(F.length(reply) > LONGEST, F.regexp_replace(first, r"\s\S*$", "")).otherwise(first)
    for pattern, word in _SHAPES:
        reply = F.regexp_replace(reply, pattern, word)
    return F.substring(F.trim(F.regexp_replace(reply, r"\s+", " ")), 1, LONGEST)


def words_of(reply: Column) -> Column:
    """A reply, to be searched for words."""
    return F.lower(F.substring(F.coalesce(reply, F.lit("")), 1, LONGEST))


def suggested(shape: Column) -> Column:
    """The class that a shape's words suggest; `other` when none does."""
    found = F.lit("other")
    for name, pattern in reversed(CLASSES):
        found = F.when(F.lower(shape).rlike(pattern), F.lit(name)).otherwise(found)
    return found


def replies(events: DataFrame, refused: DataFrame | None = None) -> DataFrame:
    """A row for each UTC hour, shape, code and status; `refused`: the events' `refusals`, if at hand."""
    selected = refusals(events) if refused is None else refused
    grouped = selected.groupBy("hour", "shape", "code", "status").agg(
        F.sum("count").alias("count"),
        *(
            F.sum(F.when(F.col("event") == verb.value, F.col("count")).otherwise(F.lit(0))).alias(verb.value)
            for verb in NOT_DELIVERED
        ),
        F.approx_count_distinct("site").alias("sites"),
        F.max("phase").alias("phase"),
        F.max("class").alias("class"),
        F.max("reply").alias("example"),
    )
    return grouped.withColumn("suggested", suggested(F.col("shape"))).withColumn(
        "day", day_of(F.unix_millis("hour"))
    )
