"""The figures of a report, asked of the tables: Spark adds up, and what comes back is bounded by `figures`.

Percentiles cannot be added, so what spans hours is counted from `events`; what can be added comes from the
hourly tables.

| figure | from | of |
|---|---|---|
| coverage, but for the next two rows; moments, accepted, sites, worst, total | `events` | the period |
| damage; batch, files, gaps | `damaged`; the last commit | all time |
| waiting files | the directory of event files, but for what the last commit has | now |
| senders, all senders; classes, replies, refusals | `senders`; `replies` (hourly) | the period |
| waiting | `queue_age` | the period |
| outcomes, troubled, duplicates | `recipients` | accepted in the period (`Troubled.before`: before it) |
| stuck | the account, else `recipients` | all time |

A name in `SUMS`, `OF_SENDERS` or `_OF_REPLIES` is a field of its dataclass and a column (of `SUMS`, an
aggregate of `_tried`) at once. A column of an hourly table may be null in old files (`_sums`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import ATTEMPT_ENDS, Verb
from mqcd.pipeline import frames
from mqcd.pipeline.account.account import Account
from mqcd.pipeline.report.figures import (
    LISTED,
    MOMENTS,
    OF_SENDERS,
    OVERDUE_MS,
    SUMS,
    TOP,
    Coverage,
    Figures,
    Listing,
    Moment,
    Reply,
    Sender,
    Shape,
    Site,
    Tried,
    Waiting,
)
from mqcd.pipeline.report.troubled import troubled
from mqcd.pipeline.sources.segments import absent, closed_files, read_ranges, without
from mqcd.pipeline.store.layout import day_of
from mqcd.pipeline.store.store import Commit, Store
from mqcd.pipeline.tables.folding import KEY
from mqcd.pipeline.tables.named import Named
from mqcd.pipeline.tables.queue_age import BUCKETS
from mqcd.pipeline.tables.recipients import cut, named
from mqcd.pipeline.tables.times import HOUR_MS

_NODES = 50
_OF_REPLIES = ("count", "deferred", "bounced", "expired")
"""What is added up of the table `replies`."""
WIDTHS = (
    1_000, 5_000, 15_000, 60_000, 300_000, 900_000, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS,
    168 * HOUR_MS,
)  # fmt: skip
"""Of a moment, ms."""


def gather(
    spark: SparkSession,
    store: Store,
    events: Path,
    *,
    days: int,
    made: int,
    overdue_ms: int = OVERDUE_MS,
    account: Account | None = None,
    unasked: str = "",
) -> Figures:
    """The figures of the last `days` days that anything is known of; `made` is now, ms.

    Raises OSError, and what Spark raises.
    """
    last = store.last()
    period = last_days(store, days, made)
    selected = frames.read(spark, store, "events", period)
    coverage = _coverage(spark, store, selected, last, events, Coverage(made=made, unasked=unasked))
    if coverage.since is None or coverage.until is None:
        return Figures(coverage=coverage, account=account)
    width = width_of(coverage.since, coverage.until)
    accepted = frames.read(spark, store, "recipients", period)
    earlier = days_before(store, period, days)
    senders, all_senders = _senders(frames.read(spark, store, "senders", period))
    classes, shapes, refusals = _replies(frames.read(spark, store, "replies", period))
    sites, worst, total = _sites(selected)
    moments = _moments(selected, width, coverage.since, coverage.until)
    return Figures(
        coverage=coverage,
        width=width,
        moments=moments,
        waiting=_waiting(frames.read(spark, store, "queue_age", period), width, _last_hour(last, period)),
        ages=tuple(name for name, _ in BUCKETS),
        account=account,
        outcomes={row["outcome"]: row["n"] for row in _counted(accepted, "outcome").collect()},
        total=total,
        accepted=sum(moment.accepted for moment in moments),
        sites=sites,
        troubled=troubled(accepted, frames.read(spark, store, "recipients", earlier) if earlier else None),
        worst=worst,
        senders=senders,
        all_senders=all_senders,
        classes=classes,
        replies=shapes,
        refusals=refusals,
        duplicates=_named(accepted.where("duplicate OR possible_duplicate"), F.col("accepted").desc()),
        stuck=_stuck(spark, store, account, coverage.until, overdue_ms),
        overdue_ms=overdue_ms,
    )


# ---------------------------------------------------------------- what it is made of


def last_days(store: Store, days: int, made: int) -> list[str]:
    """The days that have events, back from the newest; `made` is now, ms.

    A server whose clock once ran ahead must not hide all that happened since: what lies after tomorrow is
    left out, unless there is nothing else.
    """
    known = sorted({day_of(file) for file in store.files("events")})
    if not known:
        return []
    (tomorrow,) = frames.days_of([made // HOUR_MS + 24])
    known = [day for day in known if day <= tomorrow] or known
    first = str(date.fromisoformat(known[-1]) - timedelta(days=days - 1))
    return [day for day in known if day >= first]


def days_before(store: Store, period: list[str], days: int) -> list[str] | None:
    """Those of as long a time before a period; None where no event is known to be of them."""
    end = date.fromisoformat(period[-1]) - timedelta(days=days - 1)
    earlier = [str(end - timedelta(days=back)) for back in range(days, 0, -1)]
    return earlier if store.files("events", earlier) else None


def _last_hour(last: Commit, period: list[str]) -> int:
    """Last hour with events, capped at the period's last hour."""
    return min(last.last_hour, (date.fromisoformat(period[-1]) - frames.EPOCH).days * 24 + 23)


def width_of(since: int, until: int) -> int:
    """The length of a moment: the least that cuts the period into no more than about MOMENTS."""
    return next((width for width in WIDTHS if (until - since) // width < MOMENTS), WIDTHS[-1])


def _coverage(
    spark: SparkSession, store: Store, selected: DataFrame, last: Commit, events: Path, known: Coverage
) -> Coverage:
    at = F.unix_millis("at")
    span = selected.agg(
        F.min(at).alias("since"),
        F.max(at).alias("until"),
        F.count("*").alias("events"),
        F.count_distinct("node").alias("nodes"),
    ).first()
    assert span is not None  # noqa: S101 - an aggregate without groups has one row
    nodes = _counted(selected, "node").orderBy(F.col("n").desc(), "node").limit(_NODES).collect()
    damage = _counted(frames.read(spark, store, "damaged"), "damage").orderBy(F.col("n").desc(), "damage")
    return replace(
        known,
        since=span["since"],
        until=span["until"],
        nodes=tuple(sorted(row["node"] for row in nodes if row["node"])),
        node_count=span["nodes"],
        events=span["events"],
        batch=last.batch,
        files=_files(last),
        waiting_files=sum(1 for _ in without(closed_files(events), last.taken)),
        gaps=_gaps(last),
        damage=tuple((row["damage"] or "", row["n"]) for row in damage.limit(TOP).collect()),
    )


def _files(last: Commit) -> int:
    pairs = (pair for ranges in last.taken.values() for pair in read_ranges(ranges))
    return sum(high - low + 1 for low, high in pairs)


def _gaps(last: Commit) -> tuple[str, ...]:
    found = itertools.islice(absent(last.taken, last.sequences), LISTED)
    return tuple(
        f"{series}{first:010d}" + (f" to {after:010d}" if after > first else "")
        for series, first, after in found
    )


# ---------------------------------------------------------------- over time, and by site


def _tried() -> list[Column]:
    """Aggregates of verdicts, named as the fields of `Tried`."""
    event, first = F.col("event"), F.col("attempt") == 1
    verdict = event.isin(*(verb.value for verb in ATTEMPT_ENDS))
    delivered = event == Verb.DELIVERED.value
    queued = F.when(delivered, F.col("queued_ms"))
    return [
        F.count_if(verdict).alias("attempts"),
        *(F.count_if(event == verb.value).alias(verb.value) for verb in ATTEMPT_ENDS),
        F.count_if(verdict & first).alias("first_attempts"),
        F.count_if(delivered & first).alias("first_delivered"),
        F.count_if(verdict & F.col("tls").isNotNull()).alias("tls"),
        F.percentile_approx(queued, [0.5, 0.9, 0.99], F.lit(1000)).alias("latency"),
    ]


def _as_tried(row: Row) -> Tried:
    latency = row["latency"]
    return Tried(
        **{name: int(row[name] or 0) for name in SUMS},
        latency=(int(latency[0]), int(latency[1]), int(latency[2])) if latency else None,
    )


def _moments(selected: DataFrame, width: int, since: int, until: int) -> tuple[Moment, ...]:
    number = F.floor(F.unix_millis("at") / F.lit(width)).cast("long")
    accepted = F.count_if(F.col("event") == Verb.ACCEPTED.value)
    grouped = selected.groupBy(number.alias("number")).agg(accepted.alias("accepted"), *_tried())
    rows = {
        row["number"]: Moment(at=row["number"] * width, accepted=row["accepted"], tried=_as_tried(row))
        for row in grouped.collect()
    }
    every = range(since // width, until // width + 1)
    return tuple(rows.get(each, Moment(at=each * width, accepted=0, tried=Tried())) for each in every)


def _sites(selected: DataFrame) -> tuple[Listing[Site], tuple[Site, ...], Tried]:
    """The sites with the most attempts, those with the most deferrals, bounces and expiries, and all
    together."""
    verdicts = selected.where(F.col("event").isin(*(verb.value for verb in ATTEMPT_ENDS))).withColumn(
        "site", cut(F.coalesce("site", "destination", F.lit("")))
    )
    text = cut(F.coalesce("reply", F.lit(""))).alias("text")
    # Its fields are those of `Reply`. Structs compare by their first field: the largest is the newest.
    reply = F.struct(F.unix_millis("at").alias("at"), "code", "status", text)
    last = F.max(F.when(F.col("event") != Verb.DELIVERED.value, reply)).alias("last")
    by_site = verdicts.groupBy("site").agg(*_tried(), last).persist()
    try:
        most = by_site.orderBy(F.col("attempts").desc(), "site").limit(TOP).collect()
        trouble = F.col("deferred") + F.col("bounced") + F.col("expired")
        worst = by_site.where(trouble > 0).orderBy(trouble.desc(), "site").limit(TOP // 2).collect()
        count = by_site.count()
    finally:
        by_site.unpersist()
    (total,) = verdicts.agg(*_tried()).collect()
    rows = tuple(map(_as_site, most))
    return Listing(rows=rows, total=count), tuple(map(_as_site, worst)), _as_tried(total)


def _as_site(row: Row) -> Site:
    last = row["last"]
    return Site(name=row["site"], tried=_as_tried(row), last=last and Reply(**last.asDict()))


def _waiting(ages: DataFrame, width: int, last_hour: int) -> tuple[Waiting, ...]:
    """One sample per hour, or the last hour of each longer interval."""
    step = max(width // HOUR_MS, 1)
    hour = F.floor(F.unix_millis("hour") / F.lit(HOUR_MS)).cast("long")
    chosen = ages.where((hour % step == step - 1) | (hour == last_hour))
    found: dict[int, dict[str, int]] = {}
    rows = chosen.groupBy(hour.alias("number"), "age").agg(F.sum("recipients").alias("n")).collect()
    for row in rows:
        found.setdefault(row["number"], {})[row["age"]] = row["n"]
    if not found:
        return ()
    hours = [
        each for each in range(min(found), last_hour + 1) if each % step == step - 1 or each == last_hour
    ]
    return tuple(Waiting(at=each * HOUR_MS, recipients=found.get(each, {})) for each in hours)


# ---------------------------------------------------------------- senders, replies, single recipients


def _senders(selected: DataFrame) -> tuple[Listing[Sender], Sender]:
    sums = _sums(OF_SENDERS)
    each = selected.groupBy(cut("sender").alias("name")).agg(*sums)
    rows = each.orderBy(F.col("accepted").desc(), "name").limit(TOP).collect()
    (total,) = selected.agg(F.count_distinct(cut("sender")).alias("n"), *sums).collect()
    everybody = Sender(name="", **{name: total[name] for name in OF_SENDERS})
    return Listing(rows=tuple(Sender(**row.asDict()) for row in rows), total=total["n"]), everybody


def _replies(selected: DataFrame) -> tuple[tuple[Shape, ...], Listing[Shape], int]:
    """Whole classes of replies, the commonest ones clustered, and how many there are in all."""
    sums = _sums(_OF_REPLIES)
    kind = F.coalesce("class", "suggested", F.lit("other"))
    classes = selected.groupBy(kind.alias("kind")).agg(*sums).orderBy(F.col("count").desc(), "kind")
    shape = F.coalesce("shape", F.lit("")).alias("shape")
    shapes = selected.groupBy(shape, "code", "status").agg(
        *sums,
        # Of one hour: the same sites may come again in others, so the numbers cannot be added.
        F.max("sites").alias("sites"),
        F.max(kind).alias("kind"),
        cut(F.coalesce(F.max("example"), F.lit(""))).alias("example"),
    )
    rows = shapes.orderBy(F.col("count").desc(), "shape").limit(TOP).collect()
    # count_distinct skips rows containing null; `shape` is never null.
    count = F.count_distinct("shape", F.coalesce("code", F.lit(0)), F.coalesce("status", F.lit("")))
    (total,) = selected.agg(count.alias("n"), F.sum("count").alias("count")).collect()
    found = Listing(rows=_as_shapes(rows), total=total["n"])
    return _as_shapes(classes.limit(TOP).collect()), found, int(total["count"] or 0)


def _sums(names: Sequence[str]) -> list[Column]:
    """Null in files from before it was a column: none."""
    return [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]


def _as_shapes(rows: list[Row]) -> tuple[Shape, ...]:
    return tuple(Shape(**row.asDict()) for row in rows)


def _stuck(
    spark: SparkSession, store: Store, account: Account | None, until: int, overdue_ms: int
) -> Listing[Named]:
    """What has waited for long after it was due: by the queue where it was asked, else by events, in which it
    is not finished, and was due `overdue_ms` (0 = nothing is overdue) before the last of them."""
    if account is not None:
        return Listing(rows=tuple(account.overdue[:LISTED]), total=account.stuck)
    if not overdue_ms:
        return Listing()
    due = F.unix_millis(F.coalesce("due", "last_event"))
    overdue = (F.col("outcome") == "queued") & (due < F.lit(until - overdue_ms))
    return _named(frames.read(spark, store, "recipients").where(overdue), F.col("accepted").asc())


def _named(recipients: DataFrame, order: Column) -> Listing[Named]:
    total = recipients.count()
    if not total:
        return Listing()
    first = recipients.orderBy(order, *KEY).limit(LISTED)
    return Listing(rows=tuple(named(first, F.unix_millis("due"))), total=total)


def _counted(frame: DataFrame, column: str) -> DataFrame:
    return frame.groupBy(column).agg(F.count("*").alias("n"))
