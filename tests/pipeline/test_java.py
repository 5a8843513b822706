"""Java's classes, kept by a real one for the next (`mqcd.pipeline.spark.class_archive`)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.e2e.kit.plan import Plan
from tests.e2e.kit.server import ROOT
from tests.e2e.kit.smallfs import SmallFilesystem
from tests.pipeline.making import MINUTE, T0, Log

pytestmark = [pytest.mark.needs("java"), pytest.mark.slow, pytest.mark.timeout(600)]

_STARTS = """
import json, sys
from pathlib import Path
from mqcd.pipeline.spark import gateway
from mqcd.pipeline.spark.session import running

kept, mapped = Path(sys.argv[1]), []
def start(fails=False):
    with running(sources=False, classes=kept, keep=True) as spark:
        pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        if fails:
            raise RuntimeError(pid)
        mapped.append(str(kept) in Path(f"/proc/{pid}/maps").read_text())

try:
    start(fails=True)
except RuntimeError as error:
    # Nobody would wait for what it writes.
    assert not Path(f"/proc/{error.args[0]}").exists()
    assert [path.name for path in kept.iterdir()] == ["lock"]
start()
start()
gateway.end()
(archive,) = kept.glob("*.jsa")
archive.chmod(0o600)
with archive.open("r+b") as file:
    file.seek(archive.stat().st_size // 3)
    file.write(bytes(archive.stat().st_size // 3))
start()
print(json.dumps(mapped))
"""


_SUBMITTED_JOB = """
from mqcd.pipeline.spark.session import running
with running(sources=False) as spark:
    print(spark.range(3).count(), spark.sparkContext.uiWebUrl)
"""


def test_spark_submit_opens_no_page_and_stays_quiet(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(_SUBMITTED_JOB)
    home = Path(pyspark.__path__[0])
    environ = {
        **{key: value for key, value in os.environ.items() if key != "SPARK_CONF_DIR"},
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    submit = [str(home / "bin/spark-submit"), "--master", "local[1]", str(job)]
    done = subprocess.run(submit, capture_output=True, text=True, timeout=400, check=False, env=environ)
    assert (done.returncode, done.stdout) == (0, "3 None\n"), done.stderr[-4000:]
    assert " INFO " not in done.stderr


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mqcd.xml").write_text(Plan().xml())
    log = Log()
    for minute in range(300):
        log.deliver(T0 + minute * MINUTE, f"a{minute}@s{minute}.example")
    (tmp_path / "var").mkdir()
    log.seal(tmp_path / "var/events")
    disk = SmallFilesystem(tmp_path / "var/pipeline", 1)
    try:
        disk.fill()
        filler = tmp_path / "var/pipeline/filler"
        os.truncate(filler, filler.stat().st_size - (32 << 10))
        done = subprocess.run(
            [sys.executable, "-m", "mqcd", "pipeline", "run", "-c", "mqcd.xml", "--var", "var"],
            capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path,
        )  # fmt: skip
    finally:
        disk.remove()
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert os.strerror(errno.ENOSPC) in line


def test_java_starts_with_kept_classes_or_without_damaged_ones(tmp_path: Path) -> None:
    kept = tmp_path / "my tables" / "_java"
    done = subprocess.run(
        [sys.executable, "-c", _STARTS, str(kept)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=400,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # Nothing of Java's on standard output, where `--json` is.
    assert json.loads(done.stdout) == [False, True, False]
