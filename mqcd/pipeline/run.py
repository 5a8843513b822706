"""A batch: event files that were not taken yet go into all tables, at once or not at all.

    store = Store(ROOT)
    run(spark, store, EVENTS_DIRECTORY)              every file that is new
    take(spark, store, events, files=..., key=...)   events from elsewhere, such as a micro-batch of a stream

What a batch costs depends on the batch and on what is unfinished, not on the history: `events` and finished
recipients are added to, unfinished ones are written anew, and of the other tables the hours and days that
the new events touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.batch import Batch
from mqcd.pipeline.sources.segments import EventFile, closed_files, without
from mqcd.pipeline.store import Commit, Store

Tell = Callable[[str, int, int], None]


def _silent(_what: str, _done: int, _total: int) -> None:
    """Nobody waits."""


def run(
    spark: SparkSession,
    store: Store,
    directory: Path,
    *,
    admits: Callable[[EventFile], bool] = lambda _file: True,
    tell: Tell = _silent,
) -> Commit:
    """Take the new files of a directory; gives the commit, whose counts are all 0 when there were none.

    Raises PipelineBusy, OSError, and what Spark raises: then nothing has changed.
    """
    with store.writing() as last:
        files = [file for file in without(closed_files(directory), last.taken) if admits(file)]
        if not files:
            return Commit(batch=last.batch, taken=last.taken)
        names = frames.names_option(files)
        events = spark.read.format("mqcd-events").option("names", names).load(str(directory))
        return Batch(spark, store, last, tell).take(events, files)


def waiting_octets(store: Store, directory: Path) -> int:
    """How much there is to be taken, packed. Raises OSError."""
    return sum(file.size for file in without(closed_files(directory), store.last().taken))


def take(
    spark: SparkSession,
    store: Store,
    events: DataFrame,
    files: Sequence[EventFile],
    *,
    stream: str,
    number: int,
    tell: Tell = _silent,
) -> Commit | None:
    """Take events that somebody else has read from these files, as batch `number` of a stream.

    None when that batch, or a later one of the same stream, was taken before: so a stream that is killed
    between our commit and its own changes nothing when it repeats the batch. Raises what `run` raises.
    """
    with store.writing() as last:
        if number <= last.keys.get(stream, -1):
            return None
        batch = Batch(spark, store, last, tell, keys={**last.keys, stream: number})
        return batch.take(events, files)
