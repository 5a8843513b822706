"""Outages as the event log recorded them, and the replay of their mail under another retry schedule.

An outage of a site, as one node saw it: verdicts in a row that say nothing but "nobody there" (no
connection, no greeting, shutting down), at least `LEAST` over at least `SHORTEST`. It lasts to halfway
between the last of them and the next attempt that the site took up, or beyond the record. Replayed are the
recipients whose first attempt fell into one; each by the task that has its row, so that only sums of sites
come together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import Verb
from mqcd.core.schedule import RetrySchedule
from mqcd.pipeline.advice.decisions import MINUTE
from mqcd.pipeline.advice.pressure import asks_for_less
from mqcd.pipeline.advice.replay import TOLERANCE, Case, Outcome, replay
from mqcd.pipeline.tables.folding import KEY

LEAST = 3
SHORTEST = MINUTE
_OPEN = 1 << 62
"""The end of an outage that the record does not show the end of."""
_VERDICTS = (Verb.DELIVERED, Verb.DEFERRED, Verb.BOUNCED, Verb.EXPIRED)
_SITE = ("node", "site")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """What became of those of a site whose first attempt fell into an outage, or of all; times in ms."""

    site: str = ""
    recipients: int = 0
    recorded_attempts: int = 0
    recorded_through: int = 0
    recorded_wait: int = 0
    """From first attempts to those that the site took up, or as long as the record goes; of all together."""
    attempts: int = 0
    """By the model, with the schedule in force; so the next two."""
    through: int = 0
    wait: int = 0
    other_attempts: int = 0
    """By the model, with the other schedule; so the next two."""
    other_through: int = 0
    other_wait: int = 0

    @property
    def off(self) -> float:
        """Share by which the replay of the schedule in force misses the recorded attempts."""
        return abs(self.attempts - self.recorded_attempts) / max(self.recorded_attempts, 1)

    @property
    def reproduces(self) -> bool:
        """Whether the model may be believed here."""
        return self.off <= TOLERANCE


_NUMBERS = tuple(each.name for each in fields(Sums) if each.name != "site")
_SCHEMA = ", ".join(["site string", *(f"{name} long" for name in _NUMBERS)])


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """The answer: all sites together, and those with most recipients."""

    total: Sums
    sites: tuple[Sums, ...]
    more: int
    """Sites that are in the total alone."""


def verdicts(events: DataFrame) -> DataFrame:
    """When each attempt began, ms, and whether nobody was there (`down`)."""
    nobody = F.col("phase").isin("connect", "greeting", "ehlo", "tls") & ~asks_for_less()
    down = F.col("event").isin(Verb.DEFERRED.value, Verb.EXPIRED.value) & nobody
    at = F.unix_millis("at")
    told = F.col("event").isin(*(verb.value for verb in _VERDICTS)) & (F.col("phase") != "route")
    return events.where(told).select(
        "node", F.coalesce("site", "destination").alias("site"), "spid", "qid", "attempt", "origin",
        "sequence", at.alias("at"), (at - F.col("queued_ms")).alias("received"),
        (at - F.coalesce("attempt_ms", F.lit(0)) - F.coalesce("connect_ms", F.lit(0))).alias("start"),
        F.coalesce(down, F.lit(False)).alias("down"),
    )  # fmt: skip


def outages(tried: DataFrame) -> DataFrame:
    """Rows of `node`, `site`, `begin`, `end` (ms), `failures`."""
    ill = tried.where("down").groupBy(*_SITE).count().where(F.col("count") >= LEAST).select(*_SITE)
    order = Window.partitionBy(*_SITE).orderBy("start", "sequence")
    runs = tried.join(ill, list(_SITE), "left_semi").withColumn(
        "run", F.sum((~F.col("down")).cast("int")).over(order)
    )
    began = _if(F.col("down"), "start")
    summed = runs.groupBy(*_SITE, "run").agg(
        F.min(began).alias("begin"),
        F.max(began).alias("last"),
        F.count_if("down").alias("failures"),
        F.min(_if(~F.col("down"), "start")).alias("up"),
    )
    after = F.lead("up").over(Window.partitionBy(*_SITE).orderBy("run"))
    end = F.col("last") + F.greatest(F.lit(1), F.floor((F.col("after") - F.col("last")) / 2))
    return (
        summed.withColumn("after", after)
        .where((F.col("failures") >= LEAST) & (F.col("last") - F.col("begin") >= SHORTEST))
        .select(*_SITE, "begin", F.coalesce(end.cast("long"), F.lit(_OPEN)).alias("end"), "failures")
    )


def _if(condition: Column, name: str) -> Column:
    return F.when(condition, F.col(name))


def cases(tried: DataFrame, found: DataFrame, schedule: RetrySchedule) -> DataFrame:
    """The recipients to be replayed, each with the outages of its site, and what was recorded of it."""
    lists = found.groupBy(*_SITE).agg(F.sort_array(F.collect_list(F.struct("begin", "end"))).alias("outages"))
    firsts = tried.where((F.col("attempt") == 1) & F.col("down")).join(lists, list(_SITE))
    hit = F.exists("outages", lambda each: (each["begin"] <= F.col("start")) & (F.col("start") < each["end"]))
    age = F.when(F.col("origin") == "report", F.lit(schedule.maxtime_reports)).otherwise(
        F.lit(schedule.maxtime)
    )
    chosen = firsts.where(hit).select(
        *KEY,
        "site",
        F.col("start").alias("first"),
        (F.col("received") + age).alias("limit"),
        "outages",
    )
    record = tried.groupBy("node").agg(F.max("at").alias("end"))
    up = ~F.col("down")
    lives = (
        tried.select(*KEY, "attempt", "start", "down")
        .join(chosen.select(*KEY), list(KEY), "left_semi")
        .groupBy(*KEY)
        .agg(
            F.coalesce(F.min(_if(up, "attempt")), F.max("attempt")).alias("recorded"),
            F.coalesce(F.min(_if(up, "start")), F.lit(0)).alias("up"),
        )
    )
    return chosen.join(lives, list(KEY)).join(F.broadcast(record), "node")


def what_if(events: DataFrame, in_force: RetrySchedule, other: RetrySchedule, most: int = 500) -> WhatIf:
    """Replay the recorded outages under both schedules; at most `most` sites are told of by name."""
    tried = verdicts(events)
    rows = cases(tried, outages(tried), in_force)
    by_site = (
        rows.mapInArrow(_replayer(in_force, other), _SCHEMA)
        .groupBy("site")
        .agg(*(F.sum(name).alias(name) for name in _NUMBERS))
        .persist()
    )
    try:
        total = by_site.agg(
            F.count("*").alias("sites"), *(F.sum(name).alias(name) for name in _NUMBERS)
        ).first()
        told = by_site.orderBy(F.desc("recipients"), "site").limit(most).collect()
    finally:
        by_site.unpersist()
    sites = tuple(Sums(**row.asDict()) for row in told)
    if total is None or not total["sites"]:
        return WhatIf(total=Sums(), sites=(), more=0)
    whole = Sums(**{name: total[name] for name in _NUMBERS})
    return WhatIf(total=whole, sites=sites, more=total["sites"] - len(sites))


Batches = Iterable[pa.RecordBatch]


def _replayer(in_force: RetrySchedule, other: RetrySchedule) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sums: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_NUMBERS))
            for row in batch.to_pylist():
                one = sums[row["site"]]
                for place, number in enumerate(_numbers(row, in_force, other)):
                    one[place] += number
            columns = zip(*sums.values(), strict=True) if sums else ([] for _ in _NUMBERS)
            yield pa.record_batch(
                [pa.array(list(sums), pa.string()), *(pa.array(list(each), pa.int64()) for each in columns)],
                names=["site", *_NUMBERS],
            )

    return run


def _numbers(row: dict[str, Any], in_force: RetrySchedule, other: RetrySchedule) -> Sequence[int]:
    """In the order of `Sums`."""
    case = Case(
        spid=int(row["spid"], 16), qid=row["qid"], first=row["first"], limit=row["limit"], end=row["end"]
    )
    begins = [each["begin"] for each in row["outages"]]
    ends = [each["end"] for each in row["outages"]]
    recorded = Outcome(attempts=row["recorded"], through=row["up"])
    outcomes = (recorded, replay(case, begins, ends, in_force), replay(case, begins, ends, other))
    numbers = [1]
    for each in outcomes:
        ended = each.through or max(case.first, min(case.limit, case.end))
        numbers += [each.attempts, int(each.through > 0), ended - case.first]
    return numbers


def with_delays(schedule: RetrySchedule, delays: tuple[int, ...]) -> RetrySchedule:
    """The same with other delays."""
    return replace(schedule, delays=delays)
