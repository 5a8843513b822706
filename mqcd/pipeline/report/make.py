"""The report from beginning to end: bring the tables up to date, account for all mail, gather, write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqcd.core.errors import ConfigError, StoreDamaged
from mqcd.core.progress import Progress
from mqcd.core.value import value
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.pipeline.account.account import Account, account
from mqcd.pipeline.batch.run import run
from mqcd.pipeline.report.figures import OVERDUE_MS, Figures
from mqcd.pipeline.report.gather import gather
from mqcd.pipeline.report.page import page
from mqcd.pipeline.store.store import PipelineBusy, Store
from mqcd.stores.queue.moment import Moment

DAYS = 30
"""As long as the server keeps event files unless configured otherwise."""


@value
class Subject:
    """What a report is about."""

    events: Path
    """Directory of event files."""
    roots: tuple[Path, Path]
    """Of queue and spool."""
    source: Source
    days: int = DAYS
    overdue_ms: int = OVERDUE_MS
    """The server's `watchdog`: from when on a recipient is called stuck; 0 = never."""
    moment: Callable[[], Moment] | None = None
    """What a queue holds that is in another store; None = it lies in `roots`."""


def make(spark: SparkSession, store: Store, subject: Subject, *, made: int, progress: Progress) -> Figures:
    """The figures, `made` being now, ms. Tables that another process writes are taken as they are.

    Raises OSError, StoreBusy, StoreUnavailable, and what Spark raises.
    """
    found, unasked = _account(spark, store, subject, made, progress)
    progress("adding up what the report shows", 0, 0)
    with store.still():
        return gather(
            spark,
            store,
            subject.events,
            days=subject.days,
            made=made,
            overdue_ms=subject.overdue_ms,
            account=found,
            unasked=unasked,
        )


def _account(
    spark: SparkSession, store: Store, subject: Subject, made: int, progress: Progress
) -> tuple[Account | None, str]:
    """The account, or why there is none; the tables are brought up to date either way."""
    try:
        if subject.moment is None and not subject.roots[0].is_dir():
            run(spark, store, subject.events, now=made, patience=store.patience, progress=progress)
            return None, f"there is no queue in {subject.roots[0]}"
        try:
            sums = account(
                spark,
                store,
                events=subject.events,
                roots=subject.roots,
                source=subject.source,
                progress=progress,
                now=made,
                due_before=made - subject.overdue_ms if subject.overdue_ms else 0,
                moment=subject.moment,
            )
        except (StoreDamaged, ConfigError, OSError) as error:
            # If it is not the queue, this fails as well.
            run(spark, store, subject.events, now=made, patience=store.patience, progress=progress)
            return None, f"the queue cannot be read: {error}"
        return sums, ""
    except PipelineBusy:
        return None, "another process is writing the tables"


def write(figures: Figures, target: Path) -> int:
    """Write the page, whole or not at all; gives its octets. Raises OSError."""
    content = page(figures).encode()
    Disk().replace_file(target.absolute(), [content])
    return len(content)
