"""The account of all mail: accepted = delivered + bounced + expired + removed + queued + quarantined.

Each recipient has an account of its own. Acceptances and ends come from events, those that have no file
yet from the journal; what is queued and what is quarantined comes from the queue's files, read at one
moment (`homes`). A recipient that waits for its report has bounced. What cannot be read and does not say
whose it is stands for as many recipients that are nowhere else. Other nodes whose event files lie beside
those of this queue are left out: only their own queues know where their mail is.

`settle` puts what was found into the table `ledger`: which of an hour's mail is still in the queue. The
columns hold for as long as nothing happens to that day's mail: a batch that brings an event of it writes the
day anew, without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, field, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # noqa: N812

from mqcd.core.events import format_time
from mqcd.core.model import Area
from mqcd.core.progress import Progress
from mqcd.core.value import value
from mqcd.eventlog.files import Source
from mqcd.pipeline import frames
from mqcd.pipeline.batch.run import take_new
from mqcd.pipeline.queue_state.overdue import listed, overdue
from mqcd.pipeline.queue_state.recorded import Recorded, record, record_moment
from mqcd.pipeline.sources.decode import AHEAD, DOUBLED
from mqcd.pipeline.sources.segments import closed_files, without
from mqcd.pipeline.store.layout import below
from mqcd.pipeline.store.store import NOTHING, Commit, Store
from mqcd.pipeline.tables.folding import ENDS, KEY, LIFE, STATE
from mqcd.pipeline.tables.ledger import HOMES, ledger, off_balance, with_homes
from mqcd.pipeline.tables.named import Named
from mqcd.pipeline.tables.recipients import merge, of_events, spid_and_qid
from mqcd.pipeline.tables.times import day_of, hour_of, spid_ms
from mqcd.stores.queue.moment import Moment

_NAME = "mqcd pipeline ledger"
LISTED = 1000
"""Recipients that are named at most, of each kind."""


@value
class Account:
    """The sums, in recipients, and the recipients concerned (SPID/QID)."""

    accepted: int
    delivered: int
    bounced: int
    expired: int
    removed: int
    queued: int
    quarantined: int
    unknown: int
    """Outcomes that a crash left unknown."""
    duplicates: int
    """Recipients delivered after one of these."""
    possible_duplicates: int
    """Others, delivered after a connection that broke behind the final dot."""
    imbalance: int
    """Recipients whose own account is not even, less the ones that unreadable records stand for."""
    doubled: int
    """Events with an id that another one has."""
    damaged: int
    """Lines of event files that cannot be read."""
    missing: list[str] = field(default_factory=list)
    """Accepted, and nowhere."""
    excess: list[str] = field(default_factory=list)
    """In more places than one, or never accepted."""
    duplicated: list[str] = field(default_factory=list)
    possibly_duplicated: list[str] = field(default_factory=list)
    stuck: int = 0
    """Recipients in the queue that were due long ago."""
    overdue: list[Named] = field(default_factory=list)
    """Those of them that have waited longest."""
    unread: int = 0
    """Records, at most, that cannot be read, do not say whose they are, and stand for no recipient that is
    missing: if mail was lost with them, it has no event."""
    others: list[str] = field(default_factory=list)
    """Nodes that were left out, for this is not their queue."""


def fields(sums: Account) -> dict[str, object]:
    """The account as one object of JSON."""
    shown = asdict(sums)
    for each in shown["overdue"]:
        for name in ("due", "accepted"):
            each[name] = each[name] and format_time(each[name])
    return shown


def account(
    spark: SparkSession,
    store: Store,
    *,
    events: Path,
    roots: tuple[Path, Path],
    source: Source,
    progress: Progress,
    now: int,
    due_before: int = 0,
    moment: Callable[[], Moment] | None = None,
) -> Account:
    """Bring the tables up to date, add everything up, and put what was found into the table `ledger`.

    Times are ms; a recipient that waits and was due before `due_before` is stuck. No other process writes
    meanwhile: events of a time after the queue was read would make it uneven. A batch that is being made is
    waited for. `moment` gives what a queue holds that is in another store than the clustered-file queue;
    `roots` are nothing then. Raises what `run`, `record` and `moment` raise.
    """
    progress("waiting for the tables", 0, 0)
    with store.writing(_NAME, patience=store.patience) as last, store.accounting() as own:
        progress("reading the queue", 0, 0)
        read = partial(record, *roots, source) if moment is None else partial(record_moment, moment(), source)
        recorded = read(own)
        last = take_new(spark, store, last, events, now=now, admits=recorded.is_earlier, progress=progress)
        progress("adding up", 0, 0)
        return _add_up(spark, store, last, recorded, now, due_before)


def _add_up(
    spark: SparkSession, store: Store, last: Commit, recorded: Recorded, now: int, due_before: int
) -> Account:
    known = frames.read(spark, store, "recipients")
    fresh = _fresh_events(spark, last, recorded, now)
    others = [] if recorded.shared else _others(known, fresh, recorded.node)
    elsewhere = known.where(F.col("node").isin(others))
    known = known.where(~F.col("node").isin(others))
    if fresh is not None:
        # Only recipients in the journal have to be folded again.
        shown = of_events(fresh)
        lives = fresh.select(*LIFE).distinct()
        touched = known.join(lives, list(LIFE), "left_semi").select(*STATE.names)
        known = known.join(lives, list(LIFE), "left_anti").unionByName(merge(shown.unionByName(touched)))
    recipients = _with_places(with_homes(known, _homes(spark, recorded)))
    recipients = recipients.persist()
    try:
        sums = _sums(spark, store, recipients, recorded.damaged)
        settle(store, last, recipients, elsewhere)
        late = overdue(frames.reader(spark).parquet(str(recorded.homes)), due_before)
        stuck = late.count() if due_before else 0
        named = listed(late, recipients, LISTED) if stuck else []
        return replace(sums, stuck=stuck, overdue=named, others=others)
    finally:
        recipients.unpersist()


def _others(known: DataFrame, fresh: DataFrame | None, own: str) -> list[str]:
    """Nodes at work beside the queue's own: that have events after its own began. Of a node that has
    been given another name since nothing is, and its mail is in this queue."""
    shown = known.select("node", F.coalesce("accepted", "last_event").alias("first"), "last_event")
    if fresh is not None:
        shown = shown.unionByName(
            fresh.select("node", F.col("at").alias("first"), F.col("at").alias("last_event"))
        )
    spans = (
        shown.groupBy("node").agg(F.min("first").alias("first"), F.max("last_event").alias("last")).collect()
    )
    began = min((row["first"] for row in spans if row["node"] == own), default=None)
    if began is None:
        return []
    return sorted(row["node"] for row in spans if row["node"] != own and row["last"] > began)


def _fresh_events(spark: SparkSession, last: Commit, recorded: Recorded, now: int) -> DataFrame | None:
    """Those of segments whose files are not in the tables."""
    files = list(without(closed_files(recorded.events), last.taken))
    if not files:
        return None
    events = frames.events_in(frames.files_of(spark, files), now + AHEAD)
    return events.where(F.col("damage").isNull())


def _homes(spark: SparkSession, recorded: Recorded) -> DataFrame:
    waits = F.col("area") == Area.BOUNCES.value
    still_queued = ~F.col("area").isin(Area.BOUNCES.value, Area.REMOVED.value)
    own = F.lit(recorded.node)
    queued = (
        frames.reader(spark)
        .parquet(str(recorded.homes))
        .withColumn("node", own)
        .select(
            *KEY,
            still_queued.cast("long").alias("queued"),
            F.lit(0).cast("long").alias("quarantined"),
            waits.cast("long").alias("waiting"),
        )
    )
    zero = F.lit(0).cast("long")
    quarantined = frames.reader(spark).parquet(str(recorded.quarantine)).distinct().withColumn("node", own)
    return queued.unionByName(
        quarantined.select(
            *KEY, zero.alias("queued"), F.lit(1).cast("long").alias("quarantined"), zero.alias("waiting")
        )
    )


def _with_places(recipients: DataFrame) -> DataFrame:
    """Count each in one place where quarantine and area bounces have one that is elsewhere too."""
    elsewhere = sum((F.col(name) for name in (*ENDS, "queued")), F.lit(0))
    # A removal that is reported waits there too.
    failed = F.col("bounced") + F.col("expired") + F.col("removed")
    bounced = F.when((F.col("waiting") > 0) & (failed == 0), F.lit(1)).otherwise(F.col("bounced"))
    aside = (F.col("quarantined") > 0) & (elsewhere == 0) & (F.col("waiting") == 0) & (F.col("accepts") > 0)
    return recipients.withColumns({"bounced": bounced, "quarantined": aside.cast("long")})


def _sums(spark: SparkSession, store: Store, recipients: DataFrame, unread: int) -> Account:
    row = recipients.agg(
        F.sum("accepts").alias("accepted"),
        *(F.sum(name).alias(name) for name in (*ENDS, *HOMES)),
        F.sum("unknowns").alias("unknown"),
        F.count_if("duplicate").alias("duplicates"),
        F.count_if("possible_duplicate").alias("possible_duplicates"),
    ).first()
    assert row is not None  # noqa: S101 - an aggregate without groups has one row
    sums = {name: int(value or 0) for name, value in row.asDict().items()}
    off = off_balance(recipients)
    both = off.agg(
        F.sum(F.greatest("excess", F.lit(0))).alias("missing"), F.sum(F.abs("excess")).alias("all")
    ).first()
    missing, uneven = (int(both[name] or 0) for name in ("missing", "all")) if both else (0, 0)
    stands_for = min(unread, missing)
    sums["quarantined"] += stands_for
    damaged = frames.read(spark, store, "damaged")
    doubled = damaged.where(F.col("damage") == DOUBLED).count()
    return Account(
        **sums,
        imbalance=uneven - stands_for,
        doubled=doubled,
        damaged=damaged.count() - doubled,
        missing=_ids(off.where(F.col("excess") > 0)) if uneven else [],
        excess=_ids(off.where(F.col("excess") < 0)) if uneven else [],
        duplicated=_ids(recipients.where("duplicate")) if sums["duplicates"] else [],
        possibly_duplicated=_ids(recipients.where("possible_duplicate"))
        if sums["possible_duplicates"]
        else [],
        overdue=[],
        unread=unread - stands_for,
        others=[],
    )


def _ids(recipients: DataFrame) -> list[str]:
    ids = recipients.select(spid_and_qid().alias("id")).orderBy("id").limit(LISTED)
    return [row["id"] for row in ids.collect()]


def settle(store: Store, last: Commit, recipients: DataFrame, elsewhere: DataFrame) -> None:
    """Write the table anew, below the lock of `Store.writing`; `last` is the last commit.

    `recipients`: with `queued` and `quarantined`, see `with_homes`; `elsewhere`: those of other nodes, of
    whom that is not known. Raises OSError, and what Spark raises.
    """
    number = last.batch + 1
    staging = store.staging(number)
    frames.write(ledger(_dated(recipients)).unionByName(ledger(elsewhere)), staging.anew("ledger"))
    known = below(store.root, store.files("ledger"))
    store.commit(replace(last, batch=number, move=list(staging.moves()), remove=known, counts=NOTHING))


def _dated(recipients: DataFrame) -> DataFrame:
    """The SPID says when recipients that only the queue knows were accepted."""
    made = spid_ms(F.col("spid"))
    return recipients.withColumns(
        {"day": F.coalesce("day", day_of(made)), "hour": F.coalesce("hour", hour_of(made))}
    )
