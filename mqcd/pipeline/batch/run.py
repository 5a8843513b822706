"""A batch: event files that were not taken yet go into all tables, at once or not at all.

    store = Store(ROOT)
    run(spark, store, EVENTS_DIRECTORY, now=clock.now())

What a batch costs depends on the batch and on what is unfinished, not on the history: `events` and finished
recipients are added to, unfinished ones are written anew, and of the other tables the hours and days that
the new events touch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.batch.batch import Batch
from mqcd.pipeline.sources.segments import EventFile, closed_files, without
from mqcd.pipeline.store.store import Commit, Store

Tell = Callable[[str, int, int], None]


def silent(_what: str, _done: int, _total: int) -> None:
    """Nobody waits."""


def run(
    spark: SparkSession,
    store: Store,
    directory: Path,
    *,
    now: int,
    patience: float = 0,
    tell: Tell = silent,
) -> Commit:
    """Take the new files of a directory; gives the commit, whose counts are all 0 when there were none.

    `now`: ms. Raises PipelineBusy when another process has written for all of `patience`, seconds; OSError,
    and what Spark raises: then nothing has changed.
    """
    with store.writing(patience=patience) as last:
        done = take_new(spark, store, last, directory, now=now, tell=tell)
        return done if done is not last else Commit(batch=last.batch, taken=last.taken)


def take_new(
    spark: SparkSession,
    store: Store,
    last: Commit,
    directory: Path,
    *,
    now: int,
    admits: Callable[[EventFile], bool] = lambda _file: True,
    tell: Tell = silent,
) -> Commit:
    """The same below the lock of `Store.writing`, which gave `last`; and gives that where nothing is new.

    `admits`: which of the new files.
    """
    files = [file for file in without(closed_files(directory), last.taken) if admits(file)]
    if not files:
        return last
    return Batch(spark, store, last, tell, now=now).take(frames.files_of(spark, files))


def is_waiting(store: Store, directory: Path) -> bool:
    """Whether there are event files that no batch has taken. Raises OSError, TablesOfAnotherFormat."""
    return any(True for _ in closed_files(directory, but=store.last().taken))
