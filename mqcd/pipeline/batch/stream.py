"""Event files into the tables as they are closed, by Structured Streaming.

    with store.streaming():
        Stream(spark, store, EVENTS_DIRECTORY).follow(ended)

A micro-batch is a batch as `run` makes them, of the same tables and in the same log, and that log alone says
what was taken: a stream begins behind it, whether a stream or a run came before, and however it ended. So
what Spark notes at its checkpoint is of use to one stream only and is thrown away. A batch that was killed
is not begun, or is finished by the next writer. The tables' lock is held for each batch alone:
another writer in between, such as an account of all mail, is waited for, and what it took is not taken again.

`_busy` is held by a micro-batch from its beginning until its commit is reported. How it ends:

| when | Spark's thread (`_take`) | `follow` |
|---|---|---|
| stopped while idle | a later micro-batch returns at once (`_stop`) | stops the query |
| stopped while it waits for the lock | PipelineBusy: returns, nothing taken | waits for `_busy`, stops it |
| stopped with a batch in hand | commits, calls `done` | waits for `_busy`, stops it |
| the batch raises | `_failed`; Spark ends the query | raises that instead of Spark's own, also if stopped |
| `done` raises: the commit stands | the same | the same |
| Spark ends the query, as with `Pace.once` | | returns, or raises what it ended with |
| Java is gone (`_GONE`) | what asks Spark raises: `_failed` | passes over it if stopped, else raises it |

A stop of the service often ends its Java as well, and first: then that was asked for. What Java throws as it
ends looks like a fault of the batch, so a batch that failed is passed over only where Spark has ended too.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mqcd.core.ports import Clock
from mqcd.core.progress import Progress, no_progress
from mqcd.core.value import value
from mqcd.pipeline import frames
from mqcd.pipeline.batch.run import take
from mqcd.pipeline.store.store import STREAM, Commit, PipelineBusy, Store

_LOOK = 0.5
"""Seconds between two looks at whether Spark has ended the query by itself."""

_GONE = (PySparkException, Py4JError, ConnectionError)
"""What calls of Spark end with when its Java does; also what a batch of a running one fails with."""
_LOOKS = 4
"""Looks at whether Java ends: a signal to the whole service may reach it after one of its workers."""


@value
class Pace:
    """How much is taken at a time, and when."""

    once: bool = False
    """Take what there is at the start, then end."""
    every: int = 1_000
    """Look for new files so often, ms."""
    files: int | None = None
    """Files of a batch at most."""
    octets: int | None = None
    """Packed octets of a batch at most, but at least one file; counts where `files` says nothing."""


class Stream:
    """One stream, below the lock of `Store.streaming`."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        directory: Path,
        *,
        clock: Clock,
        pace: Pace,
        done: Callable[[Commit], None],
        progress: Progress = no_progress,
    ) -> None:
        """`done` is called with each commit, in a thread of Spark's; what it raises ends the stream."""
        self._spark = spark
        self._store = store
        self._directory = directory
        self._clock = clock
        self._pace = pace
        self._done = done
        self._progress = progress
        self._busy = threading.Lock()
        self._stop = threading.Event()
        self._failed: Exception | None = None

    def follow(self, stop: threading.Event) -> None:
        """Take files until stopped, then finish the batch in hand. Raises what `run` and `done` raise."""
        with suppress(PipelineBusy), self._writing(stop):
            # What a batch that was killed had committed is finished now, not with the next file.
            pass
        if stop.is_set():
            return
        try:
            query = self._start()
            self._watch(query, stop)
            query.stop()
            if self._failed is None and not stop.is_set():
                query.awaitTermination()
        except _GONE:
            if not stop.is_set():
                raise
        failed = self._failed
        if failed is not None and not (isinstance(failed, _GONE) and stop.is_set() and self._has_ended()):
            raise failed

    def _watch(self, query: StreamingQuery, stop: threading.Event) -> None:
        """Until stopped, or Spark has ended the query by itself; then until no batch is in hand."""
        try:
            while not stop.wait(_LOOK) and query.isActive:
                pass
        finally:
            # From now on no batch begins, nor waits for another writer; the one in hand is not cut off.
            self._stop.set()
            with self._busy:
                pass

    def _has_ended(self) -> bool:
        """Whether Spark has ended, or does so soon."""
        for _ in range(_LOOKS):
            try:
                # Asks its context, which raises once it has been stopped.
                _ = self._spark.sparkContext.defaultParallelism
            except _GONE:
                return True
            threading.Event().wait(_LOOK)
        return False

    def _start(self) -> StreamingQuery:
        pace = self._pace
        reader = self._spark.readStream.format("mqcd-events").option("unread", "true")
        reader = reader.option("after", json.dumps(self._store.last().taken))
        if pace.files is not None:
            reader = reader.option("maxfiles", pace.files)
        elif pace.octets is not None:
            reader = reader.option("maxbytes", pace.octets)
        writer = reader.load(str(self._directory)).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._store.scratch()))
        if pace.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{pace.every} milliseconds").start()

    @contextmanager
    def _writing(self, stop: threading.Event) -> Iterator[Commit]:
        """Raises PipelineBusy when it was stopped while another process wrote."""
        self._progress("waiting for the tables", 0, 0)
        with self._store.writing(STREAM, patience=math.inf, stop=stop) as last:
            yield last

    def _take(self, unread: DataFrame, _number: int) -> None:
        """A micro-batch, in a thread of Spark's."""
        with self._busy:
            if self._stop.is_set():
                return
            try:
                with ExitStack() as lock:
                    try:
                        last = lock.enter_context(self._writing(self._stop))
                    except PipelineBusy:
                        # Stopped while it waited.
                        return
                    # What others took between two batches Spark does not know of.
                    files = frames.files_named(unread, last.taken)
                    now = self._clock.now()
                    taken = take(self._spark, self._store, last, files, self._progress, now=now)
                # Spark begins with a batch also where there is nothing to take.
                if taken is not last:
                    self._done(taken)
            except Exception as error:
                # Spark would wrap it in a text of its own.
                self._failed = error
                raise
