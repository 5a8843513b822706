"""Streams: the same tables by the same log as `run`, whatever the files are like and whoever came before."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mqcd.pipeline import frames
from mqcd.pipeline.run import run
from mqcd.pipeline.store import Commit, PipelineBusy, Store
from mqcd.pipeline.stream import Pace, Stream
from tests.pipeline.making import HOUR, T0, Log, ids_in

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]


def streamed(spark: SparkSession, store: Store, events: Path, files: int | None = None) -> list[Commit]:
    """What there is, by a stream that ends by itself."""
    commits: list[Commit] = []
    with store.writing("a stream") as last:
        pace = Pace(once=True, files=files)
        Stream(spark, store, last, events, pace=pace, done=commits.append).follow(threading.Event())
    return commits


def ids(spark: SparkSession, store: Store) -> list[str]:
    return sorted(row["id"] for row in frames.read(spark, store, "events").select("id").collect())


def damage(spark: SparkSession, store: Store) -> list[str]:
    return sorted(row["damage"] for row in frames.read(spark, store, "damaged").select("damage").collect())


def test_streams_and_runs_follow_one_another(spark: SparkSession, tmp_path: Path) -> None:
    """With late, doubled, damaged and empty files, and few enough files that they are put together."""
    store, log, events = Store(tmp_path / "pipeline", many=3), Log(), tmp_path / "events"
    for hour in range(4):
        log.deliver(T0 + hour * HOUR)
        log.seal(events)
    late = events / "n1-0-0000000002.jsonl.gz"
    late.rename(tmp_path / "later")

    counts = [commit.counts for commit in streamed(spark, store, events, files=2)]
    assert [(each["files"], each["events"]) for each in counts] == [(2, 6), (1, 3)]

    log.deliver(T0 + 4 * HOUR)
    log.seal(events)
    assert run(spark, store, events).counts == {"files": 1, "events": 3, "damaged": 0}

    (tmp_path / "later").rename(late)
    copy = events / "x-copy.jsonl.gz"
    copy.write_bytes(late.read_bytes())
    (events / "x-none.jsonl.gz").write_bytes(gzip.compress(b""))
    (events / "x-nothing.jsonl.gz").write_bytes(b"")
    (events / "x-torn.jsonl.gz").write_bytes(gzip.compress(b"{nonsense\n")[:-4])
    (done,) = streamed(spark, store, events)
    assert done.counts == {"files": 5, "events": 3, "damaged": 5}
    assert damage(spark, store).count("doubled id") == 3
    assert ids(spark, store) == ids_in(events)
    assert streamed(spark, store, events) == []
    assert run(spark, store, events).counts == {}

    recipients = frames.read(spark, store, "recipients")
    assert [(row["outcome"], row["count"]) for row in recipients.groupBy("outcome").count().collect()] == [
        ("delivered", 5)
    ]
    assert sum(row["accepted"] for row in frames.read(spark, store, "ledger").collect()) == 5
    for table in ("events", "recipients"):
        assert len(store.files(table)) < 3 * 3, f"{table}: small files of a day are put together"


def test_a_stream_keeps_others_out_and_ends_when_told(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    stop, taken = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    def follow() -> None:
        def done(commit: Commit) -> None:
            found["batch"] = commit.batch
            taken.set()

        with store.writing("the stream") as last:
            Stream(spark, store, last, events, pace=Pace(), done=done).follow(stop)
        found["ended"] = True

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert taken.wait(300)
        with pytest.raises(PipelineBusy, match="the stream"):
            run(spark, store, events)
    finally:
        stop.set()
        thread.join(300)
    assert found == {"batch": 1, "ended": True}
    assert run(spark, store, events).counts == {}


def test_a_batch_that_fails_changes_nothing_and_its_reason_is_told(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    unreadable = events / "n1-0-0000000009.jsonl.gz"
    unreadable.mkdir()
    with pytest.raises(PySparkException, match="Is a directory"):
        streamed(spark, store, events)
    assert store.last() == Commit()
    assert store.files("events") == []
    unreadable.rmdir()
    (done,) = streamed(spark, store, events)
    assert done.batch == 1
    assert ids(spark, store) == ids_in(events)
