"""`mqcd pipeline` as processes of its own: a stream to kill, and two executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pyspark
import pytest

from mqcd.pipeline.store.layout import STAGING
from mqcd.pipeline.store.store import Store
from tests.e2e.kit.plan import Plan
from tests.e2e.kit.server import ROOT
from tests.pipeline.asking import table
from tests.pipeline.making import ids_in
from tests.pipeline.test_ledger import busy
from tests.unit.queue.support import Rig

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(2400)]

LONG = 500.0
"""Seconds for Java to start and a batch to end on a machine that has much else to do."""


class Place:
    """A configuration, its event files, and the processes that work on them."""

    def __init__(self, directory: Path) -> None:
        self.conf = directory / "mqcd.xml"
        self.conf.write_text(Plan().xml())
        self.var = directory / "var"
        self.events = self.var / "events"
        self.events.mkdir(parents=True)
        self.tables = self.var / "pipeline"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "mqcd", *words, "-c", str(self.conf), "--var", str(self.var)]

    @contextmanager
    def stream(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """A stream in a process group of its own."""
        command = self.command("pipeline", "stream", *flags)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def staged(self, batch: int, name: str) -> bool:
        """Whether this batch has come to this step."""
        return any((self.tables / STAGING).glob(f"{batch:010d}-*/{name}"))


async def test_separate_executors_do_every_job(tmp_path: Path) -> None:
    """Two executors in processes of their own: what they need must reach them."""
    place = Place(tmp_path)
    rig = await Rig(place.var).open()
    await busy(rig)
    await rig.evacuate()
    await rig.close()
    files = sorted(place.events.glob("*.jsonl.gz"))
    assert len(files) > 1
    files[0].rename(tmp_path / files[0].name)
    source = rig.options.source
    script = [sys.executable, "-c", _JOBS, str(tmp_path), json.dumps([source.node, source.shard])]
    home = spark_home(tmp_path / "spark")

    environ = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(script, stdout=PIPE, text=True, timeout=2 * LONG, check=True, env=environ, cwd=ROOT)

    told = json.loads(done.stdout)
    assert (told["run"]["files"], told["stream"]["files"]) == (len(files) - 1, 1)
    assert (told["ledger"]["accepted"], told["ledger"]["queued"], told["ledger"]["imbalance"]) == (7, 5, 0)
    assert told["waiting"] == 6, "with the one whose report waits"
    assert told["export"] == (tmp_path / "recipients.csv").stat().st_size
    found = table(Store(place.tables), "events", "id")
    assert sorted(row["id"] for row in found) == ids_in(place.events)
    (app,) = (home / "work").glob("app-*")
    assert sorted(path.parent.name for path in app.glob("*/stderr")) == ["0", "1"], "two executors"


def spark_home(directory: Path) -> Path:
    """The installed Spark under another name: workers of a local cluster write into its home."""
    directory.mkdir()
    for path in Path(pyspark.__path__[0]).iterdir():
        (directory / path.name).symlink_to(path)
    return directory


_JOBS = """
import json, sys, threading
from mqcd.net.clock import SystemClock
from dataclasses import asdict
from pathlib import Path
from mqcd.pipeline.export import export
from mqcd.pipeline.account.account import account
from mqcd.pipeline.notebook import Tables
from mqcd.pipeline.batch.run import run
from mqcd.core.progress import no_progress
from mqcd.pipeline.spark.session import session
from mqcd.pipeline.store.store import Store
from mqcd.pipeline.batch.stream import Pace, Stream
from mqcd.eventlog.files import Source
from tests.fakes.clock import START_MS

class Later(SystemClock):
    def now(self):
        return START_MS + 3_600_000

place, told, clock = Path(sys.argv[1]), {}, Later()
var = place / "var"
events, store = var / "events", Store(var / "pipeline")
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
split = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "4"}
spark = session(
    master="local-cluster[2,1,1024]",
    settings={**split, "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": quick},
)
told["run"] = run(spark, store, events, now=clock.now()).counts
for path in place.glob("*.jsonl.gz"):
    path.rename(events / path.name)
with store.streaming():
    done = lambda commit: told.update(stream=commit.counts)
    pace = Pace(once=True)
    Stream(spark, store, events, clock=clock, pace=pace, done=done).follow(threading.Event())
roots, source = (var / "queue", var / "spool"), Source(*json.loads(sys.argv[2]))
sums = account(spark, store, events=events, roots=roots, source=source, progress=no_progress, now=clock.now())
told["ledger"] = asdict(sums)
told["waiting"] = spark.read.format("mqc").load(str(var / "queue")).count()
told["export"] = export(Tables(spark, store)["recipients"], place / "recipients.csv")
print(json.dumps(told))
spark.stop()
"""
