"""Outages as the event log recorded them, and the replay of their mail under another retry schedule.

An outage of a site, as one lane of a server saw it: attempts in a row that end without an answer (no
connection, no greeting, shutting down), at least `LEAST` over at least `SHORTEST`. It lasts to halfway
between the last of them and the next attempt that the site took up, or beyond the record. Replayed are the
recipients that it met: those accepted in it, for the server may have tried none of them, and those tried
in it. Each lane's come together in the task that replays it, in order of time, as numbers; what comes
to the driver are sums of sites.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.events import ATTEMPT_ENDS, Verb
from mqcd.core.queueing.schedule import RetrySchedule
from mqcd.core.value import value
from mqcd.pipeline.advice.decisions import MINUTE
from mqcd.pipeline.advice.pressure import asks_for_less
from mqcd.pipeline.advice.replay import TOLERANCE, Mail, Outage, replay, waited
from mqcd.pipeline.tables.folding import KEY

LEAST = 3
SHORTEST = MINUTE
_OPEN = 1 << 62
"""The end of an outage that the record does not show the end of."""
_LANE = ("source", "site")


@value
class Sums:
    """What became of those of a site that outages met, or of all; times in ms."""

    site: str = ""
    recipients: int = 0
    recorded_attempts: int = 0
    """From the first in an outage to the one that the site took up."""
    recorded_wait: int = 0
    """From first attempts, or from when they would have been made, to those that the site took up, or as long
    as the record goes; of all together."""
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


@value
class WhatIf:
    """The answer: all sites together, and those with most recipients."""

    total: Sums
    sites: tuple[Sums, ...]
    more: int
    """Sites that are in the total alone."""


def verdicts(events: DataFrame) -> DataFrame:
    """When each attempt began, ms, whether no server answered (`down`), and whether it was `made` at all:
    mail that waits behind a dead destination is given up without."""
    silent = F.col("phase").isin("connect", "greeting", "ehlo", "tls") & ~asks_for_less()
    down = F.col("event").isin(Verb.DEFERRED.value, Verb.EXPIRED.value) & silent
    at = F.unix_millis("at")
    selected = F.col("event").isin(*(verb.value for verb in ATTEMPT_ENDS)) & (F.col("phase") != "route")
    start = at - F.coalesce("attempt_ms", F.lit(0)) - F.coalesce("connect_ms", F.lit(0))
    return events.where(selected).select(
        F.concat_ws("/", "node", "shard", "zone").alias("source"), "node",
        F.coalesce("site", "destination").alias("site"), "spid", "qid", "attempt", "origin", "sequence",
        (at - F.col("queued_ms")).alias("received"), start.alias("start"), (at - start).alias("took"),
        F.coalesce(down, F.lit(False)).alias("down"),
        ((F.col("phase") != "connect") | F.coalesce("remote_host", "remote_addr").isNotNull()).alias("made"),
    )  # fmt: skip


def of_ill_sites(tried: DataFrame) -> DataFrame:
    """Those of lanes in which there may have been an outage."""
    failed = tried.where(F.col("down") & F.col("made"))
    ill = failed.groupBy(*_LANE).count().where(F.col("count") >= LEAST).select(*_LANE)
    return tried.join(ill, list(_LANE), "left_semi")


def outages(tried: DataFrame) -> DataFrame:
    """Rows of `source`, `site`, `begin`, `end`, `took` (ms; the mean), `failures`."""
    order = Window.partitionBy(*_LANE).orderBy("start", "sequence")
    runs = tried.where("made").withColumn("run", F.sum((~F.col("down")).cast("int")).over(order))
    # Of a message that found no server at once, the other recipients came with it, a moment before.
    at_once = F.col("down") & (F.col("attempt") == 1) & (F.col("start") - F.col("received") < MINUTE)
    began = F.when(at_once, F.col("received")).when(F.col("down"), F.col("start"))
    summed = runs.groupBy(*_LANE, "run").agg(
        F.min(began).alias("begin"),
        F.max(began).alias("last"),
        F.avg(_if(F.col("down"), "took")).cast("long").alias("took"),
        F.count_if("down").alias("failures"),
        F.min(_if(~F.col("down"), "start")).alias("up"),
    )
    after = F.lead("up").over(Window.partitionBy(*_LANE).orderBy("run"))
    end = F.col("last") + F.greatest(F.lit(1), F.floor((F.col("after") - F.col("last")) / 2))
    return (
        summed.withColumn("after", after)
        .where((F.col("failures") >= LEAST) & (F.col("last") - F.col("begin") >= SHORTEST))
        .select(*_LANE, "begin", F.coalesce(end.cast("long"), F.lit(_OPEN)).alias("end"), "took", "failures")
    )


def _if(condition: Column, name: str) -> Column:
    return F.when(condition, F.col(name))


def cases(tried: DataFrame, found: DataFrame, schedule: RetrySchedule) -> DataFrame:
    """The recipients to be replayed, each with the outages of its lane, and what was recorded of it."""
    lists = found.groupBy(*_LANE).agg(
        F.sort_array(F.collect_list(F.struct("begin", "end", "took"))).alias("outages")
    )

    def met(name: str) -> Column:
        return F.exists("outages", lambda each: (each["begin"] <= F.col(name)) & (F.col(name) < each["end"]))

    attempt = F.struct("start", "down", "attempt")
    lives = (
        tried.join(F.broadcast(lists), list(_LANE))
        .groupBy(*KEY, *_LANE)
        .agg(
            F.min(F.when(met("received"), F.col("received"))).alias("came"),
            F.min(F.when(F.col("down") & F.col("made") & met("start"), F.col("start"))).alias("failed"),
            F.min("received").alias("received"),
            F.first("origin").alias("origin"),
            F.sort_array(F.collect_list(F.when(F.col("made"), attempt))).alias("all"),
        )
        .withColumn("first", F.coalesce("came", "failed"))
        .where(F.col("first").isNotNull())
    )
    since = F.filter("all", lambda each: each["start"] >= F.col("first"))
    up = F.get(F.filter("since", lambda each: ~each["down"]), F.lit(0))["start"]
    age = F.when(F.col("origin") == "report", F.lit(schedule.maxtime_reports)).otherwise(
        F.lit(schedule.maxtime)
    )
    selected = lives.withColumn("since", since).withColumn("up", up)
    made = F.filter("since", lambda each: F.col("up").isNull() | (each["start"] <= F.col("up")))
    return selected.select(
        *KEY, *_LANE, "first",
        (F.col("received") + age).alias("limit"), F.coalesce("up", F.lit(0)).alias("through"),
        F.size(made).alias("recorded"),
        (F.coalesce(F.get("since", F.lit(0))["attempt"], F.lit(1)) - 1).alias("tried"),
    ).join(F.broadcast(lists), list(_LANE))  # fmt: skip


def what_if(events: DataFrame, in_force: RetrySchedule, other: RetrySchedule, most: int = 500) -> WhatIf:
    """Replay the recorded outages under both schedules; at most `most` sites are named."""
    tried = of_ill_sites(verdicts(events)).persist()
    record = events.groupBy("node").agg(F.max(F.unix_millis("at")).alias("end"))
    rows = cases(tried, outages(tried), in_force).join(F.broadcast(record), "node")
    by_site = (
        rows.repartition(*_LANE)
        .sortWithinPartitions(*_LANE, "first", "spid", "qid")
        .mapInArrow(_replayer(in_force, other), _SCHEMA)
        .groupBy("site")
        .agg(*(F.sum(name).alias(name) for name in _NUMBERS))
        .persist()
    )
    try:
        total = by_site.agg(
            F.count("*").alias("sites"), *(F.sum(name).alias(name) for name in _NUMBERS)
        ).first()
        selected = by_site.orderBy(F.desc("recipients"), "site").limit(most).collect()
    finally:
        by_site.unpersist()
        tried.unpersist()
    sites = tuple(Sums(**row.asDict()) for row in selected)
    if total is None or not total["sites"]:
        return WhatIf(total=Sums(), sites=(), more=0)
    whole = Sums(**{name: total[name] for name in _NUMBERS})
    return WhatIf(total=whole, sites=sites, more=total["sites"] - len(sites))


def with_delays(schedule: RetrySchedule, delays: tuple[int, ...]) -> RetrySchedule:
    """The same with other delays."""
    return replace(schedule, delays=delays)


# ---------------------------------------------------------------- in the tasks


Batches = Iterable[pa.RecordBatch]
_COLUMNS = ("spid", "qid", "first", "limit", "tried", "recorded", "through")


def _replayer(in_force: RetrySchedule, other: RetrySchedule) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Rows of one lane come one after the other, in order of time."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_NUMBERS))
        for lane in _lanes(batches):
            one = sums[lane.site]
            for place, number in enumerate(lane.numbers(in_force, other)):
                one[place] += number
        columns = zip(*sums.values(), strict=True) if sums else ([] for _ in _NUMBERS)
        yield pa.record_batch(
            [pa.array(list(sums), pa.string()), *(pa.array(list(each), pa.int64()) for each in columns)],
            names=["site", *_NUMBERS],
        )

    return run


class _Lane:
    """Those of one lane, and what was recorded of them."""

    def __init__(self, source: str, site: str, outages: list[dict[str, int]], end: int) -> None:
        self.source, self.site = source, site
        self._outages = [Outage(**each) for each in outages]
        self._end = end
        self._mail = Mail()
        self._attempts = self._wait = 0

    def add(self, spid: str, qid: int, first: int, limit: int, tried: int, recorded: int, up: int) -> None:
        """`recorded` attempts; `up`: when the site took it up, ms, 0 = it did not."""
        self._mail.add(spid=int(spid, 16), qid=qid, first=first, limit=limit, tried=tried)
        self._attempts += recorded
        self._wait += up - first if up else waited(first, limit, self._end)

    def numbers(self, in_force: RetrySchedule, other: RetrySchedule) -> Iterator[int]:
        """In the order of `Sums`."""
        yield from (len(self._mail), self._attempts, self._wait)
        for schedule in (in_force, other):
            found = replay(self._mail, self._outages, schedule, self._end)
            yield from (found.attempts, found.through, found.wait)


def _lanes(batches: Batches) -> Iterator[_Lane]:
    lane: _Lane | None = None
    for batch in batches:
        sources, sites = (batch.column(name).to_pylist() for name in _LANE)
        rows = zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
        for place, row in enumerate(rows):
            source, site = sources[place], sites[place]
            if lane is None or (lane.source, lane.site) != (source, site):
                if lane is not None:
                    yield lane
                outages, end = (batch.column(name)[place].as_py() for name in ("outages", "end"))
                lane = _Lane(source, site, outages, end)
            lane.add(*row)
    if lane is not None:
        yield lane
