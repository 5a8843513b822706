"""What a batch does, step by step, below the lock of `Store.writing`.

    arrive                     event files are read into staging              `arrival`
    recipients, ledger, queue_age   and, beside them, the tables of hours     `recipients`, `derived`
    small files                are put together                               `derived`
    commit                     all of it becomes part of the tables, or none  `store`

What a batch costs depends on the batch and on what is open, not on the history.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from pyspark.sql import SparkSession

from mqcd.core.progress import Progress
from mqcd.pipeline import frames
from mqcd.pipeline.batch import derived
from mqcd.pipeline.batch.arrival import Arrived, arrive
from mqcd.pipeline.batch.recipients import open_files, write_recipients
from mqcd.pipeline.batch.work import Work, sizes
from mqcd.pipeline.sources.schema import NEVER
from mqcd.pipeline.sources.segments import joined
from mqcd.pipeline.spark.session import little_work
from mqcd.pipeline.store.store import Commit, Store
from mqcd.pipeline.tables.replies import refusals

_STEPS = 5 + len(frames.HOURLY)
_LITTLE, _LITTLE_OPEN = 300_000, 16 << 20
"""Events of a batch, and octets of open recipients, up to which it is little work."""

Step = Callable[[str], None]
"""Reports that a step begins."""


def take(
    spark: SparkSession, store: Store, last: Commit, files: frames.Files, progress: Progress, *, now: int
) -> Commit:
    """Take event files into the tables, all steps. Gives the new commit, or `last` where there is no file.

    `now`, ms: events that happened later than a server's clock may be ahead of it are damaged.
    """
    work = Work(spark, store, last, now)
    arrived = arrive(work, files, progress)
    if arrived is None:
        return last
    done = itertools.count()

    def step(name: str) -> None:
        progress(name, next(done), _STEPS)

    if arrived.events:
        little = is_little(arrived.events, sizes(open_files(work)))
        with little_work(spark) if little else nullcontext():
            _write_tables(work, arrived, step)
    step("joining small files")
    derived.join_small_files(work, {*arrived.days, *frames.days_of(arrived.hours), NEVER})
    commit = Commit(
        batch=work.number,
        taken=joined(last.taken, arrived.files),
        sequences=arrived.sequences,
        move=list(work.staging.moves()),
        remove=work.replaced,
        last_hour=arrived.last_hour,
        counts={"files": len(arrived.files), "events": arrived.events, "damaged": arrived.damaged},
    )
    step("committing")
    store.commit(commit)
    return commit


def _write_tables(work: Work, arrived: Arrived, step: Step) -> None:
    """All but `events` and `damaged`, in two rows side by side: planning the jobs of a small batch keeps one
    processor busy for longer than their tasks do."""

    def of_recipients() -> None:
        step("recipients")
        write_recipients(work, arrived)
        step("ledger")
        derived.write_ledger(work, arrived)
        step("queue_age")
        derived.write_queue_age(work, arrived)

    def of_events() -> None:
        events = derived.touched_events(work, arrived)
        refused = refusals(events).persist()
        try:
            for table, rows_of in frames.HOURLY.items():
                step(table)
                derived.write_hourly(work, arrived, table, rows_of(events, refused))
        finally:
            refused.unpersist()

    with ThreadPoolExecutor() as threads:
        for job in [threads.submit(of_recipients), threads.submit(of_events)]:
            job.result()


def is_little(events: int, open_octets: int) -> bool:
    """Whether a batch is little work. Open recipients are work too: after an outage there are millions."""
    return events <= _LITTLE and open_octets <= _LITTLE_OPEN
