"""Streams: the same tables by the same log as `run`, whatever the files are like and whoever came before."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mqcd.cli.main import main
from mqcd.core.progress import Progress, no_progress
from mqcd.pipeline.batch.run import run, take_new
from mqcd.pipeline.batch.stream import Pace, Stream
from mqcd.pipeline.store.store import NOTHING, Commit, PipelineBusy, Store
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.waiting import poll
from tests.fakes.clock import FakeClock
from tests.pipeline.asking import table
from tests.pipeline.making import HOUR, NOW, T0, Log, ids_in

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]


class Waiting(Store):
    """Tells when somebody begins to wait for a batch."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun = threading.Event()

    @contextmanager
    def writing(
        self, what: str = "a batch", *, patience: float = 0, stop: threading.Event | None = None
    ) -> Iterator[Commit]:
        self.begun.set()
        with super().writing(what, patience=patience, stop=stop) as last:
            yield last


def streamed(
    spark: SparkSession,
    store: Store,
    events: Path,
    files: int | None = None,
    progress: Progress = no_progress,
) -> list[Commit]:
    """What there is, by a stream that ends by itself."""
    commits: list[Commit] = []
    with store.streaming():
        pace = Pace(once=True, files=files)
        clock = FakeClock(NOW)
        Stream(spark, store, events, clock=clock, pace=pace, done=commits.append, progress=progress).follow(
            threading.Event()
        )
    return commits


def ids(store: Store) -> list[str]:
    return sorted(row["id"] for row in table(store, "events", "id"))


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
    assert run(spark, store, events, now=NOW).counts == {"files": 1, "events": 3, "damaged": 0}

    (tmp_path / "later").rename(late)
    copy = events / "x-copy.jsonl.gz"
    copy.write_bytes(late.read_bytes())
    (events / "x-none.jsonl.gz").write_bytes(gzip.compress(b""))
    (events / "x-nothing.jsonl.gz").write_bytes(b"")
    (events / "x-torn.jsonl.gz").write_bytes(gzip.compress(b"{nonsense\n")[:-4])
    (done,) = streamed(spark, store, events)
    assert done.counts == {"files": 5, "events": 3, "damaged": 5}
    assert [row["damage"] for row in table(store, "damaged")].count("doubled id") == 3
    assert ids(store) == ids_in(events)
    assert streamed(spark, store, events) == []
    assert run(spark, store, events, now=NOW).counts == NOTHING

    assert [row["outcome"] for row in table(store, "recipients")] == ["delivered"] * 5
    assert sum(row["accepted"] for row in table(store, "ledger")) == 5
    for name in ("events", "recipients"):
        assert len(store.files(name)) < 3 * 3, f"{name}: small files of a day are put together"


def test_a_stream_passes_over_what_is_removed_before_it_is_read(
    spark: SparkSession, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, events = Log(), tmp_path / "events"
    paths = []
    for _ in range(3):
        log.deliver(T0)
        paths.append(log.seal(events))
    odd = paths[2].rename(events / os.fsdecode(b"\xff-0-0000000003.jsonl.gz"))

    def remove(what: str, _done: int, _total: int) -> None:
        if what == "reading events":
            paths[0].unlink(missing_ok=True)

    commits = streamed(spark, store, events, progress=remove)
    assert [commit.counts for commit in commits] == [{"files": 2, "events": 6, "damaged": 0}]
    assert store.last().taken == {"\\xff-0-": "3", "n1-0-": "2"}
    assert f"{paths[0].name} first" in caplog.text
    assert odd.exists()
    assert streamed(spark, store, events) == []


def test_others_write_between_a_streams_batches(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command itself, and a signal to the process that it runs in."""
    log, conf, var = Log(), tmp_path / "mqcd.xml", tmp_path / "var"
    conf.write_text(Plan().xml())
    var.mkdir()
    log.deliver(T0)
    log.seal(var / "events")
    store = Store(var / "pipeline")
    met: list[str] = []
    ended = threading.Event()

    def until(batch: int) -> None:
        poll(lambda: store.last().batch == batch or ended.is_set(), f"batch {batch}", seconds=300)

    def meet() -> None:
        until(1)
        try:
            with store.streaming():
                pass
        except PipelineBusy as error:
            met.append(str(error))
        with store.writing("a test", patience=300) as last:
            log.deliver(T0 + HOUR)
            log.seal(var / "events")
            take_new(spark, store, last, var / "events", now=NOW)
        log.deliver(T0 + 2 * HOUR)
        log.seal(var / "events")
        until(3)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=meet)
    thread.start()
    code = main(["pipeline", "stream", "--json", "-c", str(conf), "--var", str(var)])
    ended.set()
    thread.join()
    assert code == 0
    assert signal.getsignal(signal.SIGTERM) == before
    (met_once,) = met
    assert "mqcd pipeline stream" in met_once
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == [{"batch": batch, "files": 1, "events": 3, "damaged": 0} for batch in (1, 3)]
    assert ids(store) == ids_in(var / "events")
    assert run(spark, store, var / "events", now=NOW).counts == NOTHING


def test_a_stream_that_waits_for_another_writer_ends_when_told(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    log, events, stop = Log(), tmp_path / "events", threading.Event()
    log.deliver(T0)
    log.seal(events)
    taken: list[Commit] = []
    waits = Waiting(store.root)
    stream = Stream(spark, waits, events, clock=FakeClock(NOW), pace=Pace(every=100), done=taken.append)
    with store.writing("a test"):
        following = threading.Thread(target=stream.follow, args=(stop,))
        following.start()
        assert waits.begun.wait(300)
        stop.set()
        following.join()
    assert not taken
    assert len(streamed(spark, store, events)) == 1


def test_a_failed_batch_changes_nothing_and_reports_why(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    log, events = Log(), tmp_path / "events"
    log.deliver(T0)
    log.seal(events)
    unreadable = events / "n1-0-0000000009.jsonl.gz"
    # A file like others, until it is read.
    unreadable.symlink_to("/proc/self/mem")
    with pytest.raises(PySparkException, match="Input/output error"):
        streamed(spark, store, events)
    assert store.last() == Commit()
    assert store.files("events") == []
    unreadable.unlink()
    (done,) = streamed(spark, store, events)
    assert done.batch == 1
    assert ids(store) == ids_in(events)


class Unstarted(Stream):
    """A stream whose query is a fake: Spark is not asked for one."""

    def __init__(self, store: Store, query: Any, done: Callable[[Commit], None], spark: Any = None) -> None:
        super().__init__(spark, store, store.root, clock=FakeClock(NOW), pace=Pace(), done=done)
        self._query = query

    def _start(self) -> Any:
        return self._query


def test_java_that_goes_while_it_is_asked_does_not_fail_a_stop(tmp_path: Path) -> None:
    stop = threading.Event()

    class Gone:
        @property
        def isActive(self) -> bool:
            stop.set()
            raise Py4JError("gone")

    done: list[Commit] = []
    Unstarted(Store(tmp_path), Gone(), done.append).follow(stop)
    assert (stop.is_set(), done) == (True, [])


class Batch:
    """A query that is active until it is asked, then takes a batch as Spark does: its error is hidden."""

    def __init__(self, stop: threading.Event | None, unread: Any) -> None:
        """`stop`: set as the batch begins."""
        self._stop = stop
        self._unread = unread
        self.stream: Unstarted

    @property
    def isActive(self) -> bool:
        if self._stop is not None:
            self._stop.set()
        with suppress(Exception):
            self.stream._take(self._unread, 0)
        return False

    def stop(self) -> None:
        """Nothing runs."""


class Unreadable:
    """What Spark gives a batch, from files that cannot be read."""

    def select(self, _column: str) -> None:
        raise PySparkException("corrupt")


class Context:
    """Of Spark, which has ended or has not."""

    def __init__(self, *, ended: bool) -> None:
        self.sparkContext = self
        self._ended = ended

    @property
    def defaultParallelism(self) -> int:
        if self._ended:
            raise Py4JError("stopped")
        return 2


@pytest.mark.parametrize(
    ("asked", "ended", "raises"),
    [
        (False, False, True),
        (True, False, True),
        (True, True, False),
        (False, True, True),
    ],
)
def test_a_batch_that_fails_under_a_stop_is_passed_over_only_with_spark_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool, ended: bool, raises: bool
) -> None:
    monkeypatch.setattr("mqcd.pipeline.batch.stream._LOOK", 0.001)
    stop = threading.Event()
    query = Batch(stop if asked else None, Unreadable())
    query.stream = Unstarted(Store(tmp_path), query, lambda _commit: None, Context(ended=ended))
    with pytest.raises(PySparkException, match="corrupt") if raises else nullcontext():
        query.stream.follow(stop)


@pytest.mark.parametrize("raised", [BrokenPipeError, PipelineBusy])
def test_what_done_raises_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[Exception]
) -> None:
    def done(_commit: Commit) -> None:
        raise raised

    monkeypatch.setattr("mqcd.pipeline.batch.stream.take", lambda *_args, **_named: Commit(batch=1))
    query = Batch(None, SimpleNamespace(select=lambda _column: None))
    query.stream = Unstarted(Store(tmp_path), query, done, Context(ended=False))
    with pytest.raises(raised):
        query.stream.follow(threading.Event())


def test_a_commit_is_reported_before_a_stop_may_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unread: Any = SimpleNamespace(select=lambda _column: None)
    monkeypatch.setattr("mqcd.pipeline.batch.stream.take", lambda *_args, **_named: Commit(batch=1))
    busy: list[bool] = []
    stream = Unstarted(Store(tmp_path), None, lambda _commit: busy.append(stream._busy.locked()))
    stream._take(unread, 0)
    assert busy == [True]
