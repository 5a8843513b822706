"""Event files that are in no table yet go into all tables, at once or not at all.

`run` is the whole of it, for programs and notebooks. The command `pipeline run` takes the store's lock
itself, since other work follows under it, and calls `take_new`; so does the stream for each of its batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqcd.core.progress import Progress, no_progress
from mqcd.pipeline import frames
from mqcd.pipeline.batch.batch import take
from mqcd.pipeline.sources.segments import EventFile, closed_files, without
from mqcd.pipeline.store.store import Commit, Store


def run(
    spark: SparkSession,
    store: Store,
    directory: Path,
    *,
    now: int,
    patience: float = 0,
    progress: Progress = no_progress,
) -> Commit:
    """Take the new files of a directory; gives the commit, whose counts are all 0 when there were none.

    `now`: ms. Raises PipelineBusy when another process has written for all of `patience`, seconds; OSError,
    and what Spark raises: then nothing has changed.
    """
    with store.writing(patience=patience) as last:
        done = take_new(spark, store, last, directory, now=now, progress=progress)
        return done if done is not last else Commit(batch=last.batch, taken=last.taken)


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
