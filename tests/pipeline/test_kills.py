"""A batch that does not come to its end: its process is killed, its disk is full."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqcd.pipeline.store.store import Store
from tests.e2e.kit.smallfs import SmallFilesystem
from tests.e2e.kit.waiting import poll
from tests.pipeline.asking import table
from tests.pipeline.making import HOUR, MINUTE, T0, Log, ids_in, write
from tests.pipeline.test_processes import LONG, Place
from tests.pipeline.test_stream import streamed

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(2400)]


def test_kills_amid_batches_lose_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Python and Java together: while a first batch reads events, and when a second one has made tables."""
    place, log, other = Place(tmp_path), Log(), Log("n2")
    waits = log.accept(T0, "waits@site.example")
    log.verdict(waits, "deferred", T0 + 100, due="2025-11-18T11:30:00.000Z")
    for hour in range(7):
        log.deliver(T0 + hour * HOUR)
        log.seal(place.events)
    late = place.events / "n1-0-0000000002.jsonl.gz"
    late.rename(tmp_path / "late")

    for batch, step in ((1, "in"), (2, "sites")):
        with place.stream("--maxfiles", "2") as process:
            poll(partial(place.staged, batch, step), f"batch {batch} at {step}", seconds=LONG)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert place.staged(batch, step), "it was killed in the middle"
            other.deliver(T0 + MINUTE)
            other.seal(place.events)
    (tmp_path / "late").rename(late)

    store = Store(place.tables)
    streamed(spark, store, place.events)
    assert store.last().taken == {"n1-0-": "1-7", "n2-0-": "1-2"}
    log.verdict(waits, "delivered", T0 + 9 * HOUR, 2)
    log.seal(place.events)
    write(place.events / "x-copy.jsonl.gz", [{"v": 1}])
    (last,) = streamed(spark, store, place.events)
    assert last.counts["damaged"] == 1
    assert last.taken == {"n1-0-": "1-8", "n2-0-": "1-2", "x-copy.jsonl.gz": "0"}

    assert sorted(row["id"] for row in table(store, "events", "id")) == ids_in(place.events)
    assert [row["outcome"] for row in table(store, "recipients", "outcome")] == ["delivered"] * 10
    for name in ("sites", "senders"):
        assert sum(row["delivered"] for row in table(store, name, "delivered")) == 10, name


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """With Java of its own, whose words are on its standard error too."""
    place, log = Place(tmp_path), Log()
    for minute in range(300):
        log.deliver(T0 + minute * MINUTE, f"a{minute}@s{minute}.example")
    log.seal(place.events)
    disk = SmallFilesystem(place.tables, 1)
    try:
        disk.fill()
        filler = place.tables / "filler"
        os.truncate(filler, filler.stat().st_size - (32 << 10))
        command = place.command("pipeline", "run")
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    finally:
        disk.remove()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert os.strerror(errno.ENOSPC) in line
