"""Event files that are in no table yet go into all tables, at once or not at all.

`run` is the whole of it, for programs and notebooks. The command `pipeline run` takes the store's lock itself
and calls `take_new`; `pipeline ledger`, too, which works on under the same lock. The stream gives each of its
batches to `take`.

What a batch (`take`) does, step by step, below the lock of `Store.writing`:

    arrive                     event files are read into staging              `arrival`
    recipients                 are folded anew, with the batch's events       `recipients`
    ledger, queue_age          follow from them; hours, beside them, from events
    small files                are put together
    commit                     all of it becomes part of the tables, or none  `store`

`arrive` replaces no file. The step `recipients` returns the table's files as the batch leaves them, which are
handed from step to step: the commit removes those of before that are missing there. Each other step returns
the committed files that it replaces, and the commit removes these.

What a batch costs depends on the batch and on what is open, not on the history.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mqcd.core.progress import Progress, no_progress
from mqcd.pipeline import frames
from mqcd.pipeline.batch.arrival import Arrived, arrive
from mqcd.pipeline.batch.files import RecipientFiles
from mqcd.pipeline.batch.recipients import open_files, write_recipients
from mqcd.pipeline.batch.work import Work, sizes
from mqcd.pipeline.sources.schema import NEVER
from mqcd.pipeline.sources.segments import EventFile, closed_files, joined, without
from mqcd.pipeline.spark.session import little_work
from mqcd.pipeline.store.layout import DONE, below, day_of, is_state
from mqcd.pipeline.store.store import NOTHING, Commit, Store
from mqcd.pipeline.tables.ledger import ledger
from mqcd.pipeline.tables.queue_age import MOST, queue_age
from mqcd.pipeline.tables.replies import refusals
from mqcd.pipeline.tables.times import HOUR_MS

_STEPS = ("recipients", "ledger", "queue_age", *frames.HOURLY, "joining small files", "committing")
"""What `take` calls its `step` with, each once; the last two alone where no event came in."""
_LITTLE, _LITTLE_OPEN = 300_000, 16 << 20
"""Events of a batch, and octets of open recipients, up to which it is little work."""
_SMALL = 16 << 20
"""Octets of a file below which it is small."""

Step = Callable[[str], None]
"""Reports that a step begins."""


def take(
    spark: SparkSession, store: Store, last: Commit, files: frames.Files, progress: Progress, *, now: int
) -> Commit:
    """Take event files into the tables, all steps. Gives the new commit, or `last` where there is no file.

    `now`, ms: events that happened later than a server's clock may be ahead of it are damaged.
    Raises ClockBehind, where they are so many that `now` must be wrong.
    """
    work = Work(spark, store, last, now)
    arrived = arrive(work, files, progress)
    if arrived is None:
        return last
    done = itertools.count()

    def step(name: str) -> None:
        progress(name, next(done), len(_STEPS))

    recipients = before = RecipientFiles(committed=store.files("recipients"))
    replaced: list[str] = []
    if arrived.events:
        little = is_little(arrived.events, sizes(open_files(before).committed))
        with little_work(spark) if little else nullcontext():
            recipients, replaced = _write_tables(work, arrived, before, step)
    step("joining small files")
    # The committed files of recipients that the batch leaves out.
    replaced += before.without(recipients).committed
    replaced += _join_small_files(work, recipients, {*arrived.days, *frames.days_of(arrived.hours), NEVER})
    commit = Commit(
        batch=work.number,
        taken=joined(last.taken, arrived.files),
        sequences=arrived.sequences,
        move=list(work.staging.moves()),
        remove=below(store.root, replaced),
        last_hour=arrived.last_hour,
        counts={"files": len(arrived.files), "events": arrived.events, "damaged": arrived.damaged},
    )
    step("committing")
    store.commit(commit)
    return commit


def _write_tables(
    work: Work, arrived: Arrived, before: RecipientFiles, step: Step
) -> tuple[RecipientFiles, list[str]]:
    """All but `events` and `damaged`, in two rows side by side: planning the jobs of a small batch keeps one
    processor busy for longer than their tasks do.

    Gives the files of recipients as the batch leaves them, and of other tables the committed files that it
    replaces. Where both rows fail, the error of the first is raised alone: nothing has changed, and the next
    attempt meets the other.
    """

    def of_recipients() -> tuple[RecipientFiles, list[str]]:
        step("recipients")
        recipients = write_recipients(work, arrived, before)
        step("ledger")
        replaced = _write_ledger(work, arrived, recipients)
        step("queue_age")
        return recipients, replaced + _write_queue_age(work, arrived, recipients)

    def of_events() -> list[str]:
        events = _touched_events(work, arrived)
        refused = refusals(events).persist()
        replaced: list[str] = []
        try:
            for table, rows_of in frames.HOURLY.items():
                step(table)
                replaced += _write_hourly(work, arrived, table, rows_of(events, refused))
        finally:
            refused.unpersist()
        return replaced

    with ThreadPoolExecutor() as threads:
        lives, hours = threads.submit(of_recipients), threads.submit(of_events)
        recipients, replaced = lives.result()
        return recipients, replaced + hours.result()


def is_little(events: int, open_octets: int) -> bool:
    """Whether a batch is little work. Open recipients are work too: after an outage there are millions."""
    return events <= _LITTLE and open_octets <= _LITTLE_OPEN


def _touched_events(work: Work, arrived: Arrived) -> DataFrame:
    """All events of the hours that the batch has events of."""
    first, last = arrived.hours[0], arrived.hours[-1]
    hour = F.floor(F.unix_millis("at") / F.lit(HOUR_MS)).cast("long")
    known = frames.read(work.spark, work.store, "events", frames.days_of(arrived.hours))
    known = known.where(F.col("at") >= F.timestamp_millis(F.lit(first * HOUR_MS)))
    known = known.where(F.col("at") < F.timestamp_millis(F.lit((last + 1) * HOUR_MS)))
    return known.where(hour.isin(arrived.hours)).unionByName(work.came("events"))


def _write_hourly(work: Work, arrived: Arrived, table: str, rows: DataFrame) -> list[str]:
    """Replace the hours of one table of `frames.HOURLY`."""
    hours = [hour * HOUR_MS for hour in arrived.hours]
    return work.replace(table, rows, ~F.unix_millis("hour").isin(hours), frames.days_of(arrived.hours))


def _write_ledger(work: Work, arrived: Arrived, recipients: RecipientFiles) -> list[str]:
    """Replace the days of acceptance that the batch is about."""
    days = set(arrived.days)
    rows = work.recipients(recipients.where(lambda path: day_of(path) in days))
    return work.replace("ledger", ledger(rows), F.lit(False), arrived.days)


def _write_queue_age(work: Work, arrived: Arrived, recipients: RecipientFiles) -> list[str]:
    """Replace all hours from the first that the batch has events of, or from the last one known."""
    first, last = min(arrived.hours[0], arrived.last_hour), arrived.last_hour
    if work.last.last_hour:
        # Mail waited through hours without events as well, and the last hour may have been counted amid it.
        first = min(first, work.last.last_hour)
    before = F.unix_millis("hour") < F.lit(first * HOUR_MS)
    rows = queue_age(_waited(work, recipients, first), first, last, work.now)
    days = frames.days_of(range(first, last + 1))
    # Later days are there only where an earlier batch has believed clocks that were ahead. Written anew they
    # have no rows.
    later = {day for day in map(day_of, work.store.files("queue_age")) if day > days[-1]}
    return work.replace("queue_age", rows, before, [*days, *sorted(later)])


def _waited(work: Work, recipients: RecipientFiles, first: int) -> DataFrame:
    """Recipients that may have waited in that hour or later. Most of the history ended before: its files are
    left out by day, its rows by Parquet's statistics."""
    (since,) = frames.days_of([first - MOST - 24])
    files = recipients.where(lambda path: day_of(path) >= since or not is_state(path, DONE))
    ended = F.col("ended")
    late = ended.isNull() | (ended >= F.timestamp_millis(F.lit(first * HOUR_MS)))
    return work.recipients(files).where(late)


def _join_small_files(work: Work, recipients: RecipientFiles, days: set[str]) -> list[str]:
    """Of files that are only added to: where one of these days has many small ones, make one of them."""
    # Open recipients are written anew anyway, and their files keep their names.
    done = [path for path in recipients.committed if day_of(path) in days and is_state(path, DONE)]
    added = {table: work.store.files(table, days) for table in ("events", "damaged")} | {"recipients": done}
    replaced: list[str] = []
    for table, paths in added.items():
        small: dict[str, list[str]] = {}
        for path in paths:
            if Path(path).stat().st_size < _SMALL:
                small.setdefault(day_of(path), []).append(path)
        files = [file for each in small.values() if len(each) >= work.store.many for file in each]
        if files:
            frames.write(work.read(table, files), work.staging.whole(table))
            replaced += files
    return replaced


def run(
    spark: SparkSession,
    store: Store,
    directory: Path,
    *,
    now: int,
    patience: float = 0,
    progress: Progress = no_progress,
) -> Commit:
    """Take the new files of a directory; returns the commit, whose counts are all 0 when there were none.

    `now`: ms. Raises PipelineBusy when another process has written for all of `patience`, seconds;
    ClockBehind, OSError, and what Spark raises: then nothing has changed.
    """
    with store.writing(patience=patience) as last:
        done = take_new(spark, store, last, directory, now=now, progress=progress)
        return done if done is not last else replace(last, counts=NOTHING)


def take_new(
    spark: SparkSession,
    store: Store,
    last: Commit,
    directory: Path,
    *,
    now: int,
    admits: Callable[[EventFile], bool] = lambda _file: True,
    progress: Progress = no_progress,
) -> Commit:
    """The same below the lock of `Store.writing`, which gave `last`; and gives that where nothing is new.

    `admits`: which of the new files.
    """
    files = [file for file in without(closed_files(directory), last.taken) if admits(file)]
    if not files:
        return last
    return take(spark, store, last, frames.files_of(spark, files), progress, now=now)


def is_waiting(last: Commit, directory: Path) -> bool:
    """Whether there are event files that no batch up to `last` has taken. Raises OSError."""
    return any(True for _ in closed_files(directory, but=last.taken))
