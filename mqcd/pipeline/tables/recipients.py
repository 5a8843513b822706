"""`recipients`: one row for each recipient of each message, from all its events so far.

An event tells some columns of a recipient, a row of the table tells others: both have the same shape
(`of_events`), and `merge` folds any number of them into one row. So a batch adds to what was known
without reading the old events again, in whichever order files come.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import Verb
from mqcd.pipeline.tables.times import day_of, hour_of, spid_ms

KEY = ("spid", "qid")
ENDS = ("delivered", "bounced", "expired", "removed")
"""Verbs; of the last no event is written yet."""
_COUNTS: dict[str, tuple[str, ...]] = {
    "accepts": (Verb.ACCEPTED,),
    **{verb: (verb,) for verb in ENDS},
    "deferrals": (Verb.DEFERRED,),
    "unknowns": (Verb.OUTCOME_UNKNOWN,),
    "reports": (Verb.REPORTED, Verb.DISCARDED),
}
_LEAST = ("accepted", "first_attempt", "ended", "unknown_sequence")
_GREATEST = ("node", "shard", "attempts", "last_event", "delivered_sequence")
_ENVELOPE = ("sender", "recipient", "domain", "size", "origin", "listener", "client", "user")
_LAST = (
    "last", "destination", "site", "zone", "remote_host", "remote_addr", "tls", "code", "status",
    "reply", "phase", "class",
)  # fmt: skip
_VERDICTS = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
STATE = (
    *KEY, *_COUNTS, *_LEAST, *_GREATEST, "envelope_sequence", *_ENVELOPE, "last_sequence", *_LAST,
    "due_sequence", "due",
)  # fmt: skip
"""The columns that are merged; the others follow from them."""


def _is(*verbs: str) -> Column:
    return F.col("event").isin(*map(str, verbs))


def of_events(events: DataFrame) -> DataFrame:
    """Each event about a recipient as what it tells of it."""
    told = events.where(F.col("spid").isNotNull() & F.col("qid").isNotNull())
    ends, verdict = _is(*ENDS), _is(*_VERDICTS)
    sequence = F.col("sequence")
    columns: dict[str, Column] = {
        "accepted": F.when(_is(Verb.ACCEPTED), F.col("at")),
        "first_attempt": F.when(_is(Verb.ATTEMPTED), F.col("at")),
        "ended": F.when(ends, F.col("at")),
        "unknown_sequence": F.when(_is(Verb.OUTCOME_UNKNOWN), sequence),
        "attempts": F.coalesce("attempt", F.lit(0)),
        "last_event": F.col("at"),
        "delivered_sequence": F.when(_is(Verb.DELIVERED), sequence),
        # An acceptance tells the envelope best; of an event without a sender nothing is taken.
        "envelope_sequence": F.when(
            F.col("sender").isNotNull(), F.when(_is(Verb.ACCEPTED), F.lit(1 << 62)).otherwise(sequence)
        ),
        "last_sequence": F.when(verdict, sequence),
        "last": F.col("event"),
        "due_sequence": F.when(F.col("due").isNotNull(), sequence),
    }
    columns |= {name: _is(*verbs).cast("long") for name, verbs in _COUNTS.items()}
    return told.select([columns[name].alias(name) if name in columns else F.col(name) for name in STATE])


def merge(rows: DataFrame) -> DataFrame:
    """One row for each recipient."""
    grouped = rows.groupBy(*KEY).agg(
        *(F.sum(name).alias(name) for name in _COUNTS),
        *(F.min(name).alias(name) for name in _LEAST),
        *(F.max(name).alias(name) for name in _GREATEST),
        _newest("envelope_sequence", _ENVELOPE),
        _newest("last_sequence", _LAST),
        _newest("due_sequence", ("due",)),
    )
    return _derived(
        grouped.select(
            *KEY, *_COUNTS, *_LEAST, *_GREATEST, "_envelope_sequence.*", "_last_sequence.*", "_due_sequence.*"
        )
    )


def _newest(sequence: str, names: tuple[str, ...]) -> Column:
    """The columns of the row with the greatest sequence, where there is one."""
    told = F.when(F.col(sequence).isNotNull(), F.struct(sequence, *names))
    return F.max(told).alias(f"_{sequence}")


def _derived(rows: DataFrame) -> DataFrame:
    ended = F.col("ended")
    made = spid_ms(F.col("spid"))
    outcome = F.lit("queued")
    for name in reversed(ENDS):
        outcome = F.when(F.col(name) > 0, F.lit(name)).otherwise(outcome)
    since = F.unix_millis(F.coalesce("accepted", F.timestamp_millis(made)))
    return (
        rows.withColumn("outcome", outcome)
        .withColumn("hour", hour_of(since))
        .withColumn("latency_ms", F.unix_millis(ended) - F.unix_millis("accepted"))
        .withColumn(
            "duplicate", F.coalesce(F.col("delivered_sequence") > F.col("unknown_sequence"), F.lit(False))
        )
        .withColumn("open", _open())
        .withColumn("day", day_of(made))
    )


def _open() -> Column:
    """Whether more is to come: no end yet, or one that somebody is still to be told of."""
    failed = F.col("bounced") + F.col("expired") > 0
    ends = failed | (F.col("delivered") + F.col("removed") > 0)
    # Of a report that fails nobody is told (RFC 5321, 4.5.5).
    told = (F.col("reports") > 0) | (F.coalesce("sender", F.lit("?")) == "")
    return (F.col("accepts") == 0) | ~ends | (failed & ~told)
