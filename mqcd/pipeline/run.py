"""A batch: event files that were not taken yet go into all tables, at once or not at all.

    store = Store(ROOT)
    run(spark, store, EVENTS_DIRECTORY)

What a batch costs depends on the batch and on what is unfinished, not on the history: `events` and finished
recipients are added to, unfinished ones are written anew, and of the other tables the hours and days that
the new events touch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.batch import Batch
from mqcd.pipeline.sources.segments import EventFile, closed_files, without
from mqcd.pipeline.store import Commit, Store

Tell = Callable[[str, int, int], None]


def silent(_what: str, _done: int, _total: int) -> None:
    """Nobody waits."""


def run(
    spark: SparkSession,
    store: Store,
    directory: Path,
    *,
    admits: Callable[[EventFile], bool] = lambda _file: True,
    tell: Tell = silent,
) -> Commit:
    """Take the new files of a directory; gives the commit, whose counts are all 0 when there were none.

    Raises PipelineBusy, OSError, and what Spark raises: then nothing has changed.
    """
    with store.writing() as last:
        files = [file for file in without(closed_files(directory), last.taken) if admits(file)]
        if not files:
            return Commit(batch=last.batch, taken=last.taken)
        return Batch(spark, store, last, tell).take(frames.files_of(spark, files))


def is_waiting(store: Store, directory: Path) -> bool:
    """Whether there are event files that no batch has taken. Raises OSError, TablesOfAnotherFormat."""
    return any(True for _ in closed_files(directory, but=store.last().taken))
