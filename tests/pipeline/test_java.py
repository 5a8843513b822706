"""Java's classes, kept by a real one for the next (`mqcd.pipeline.spark.class_archive`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kit.server import ROOT

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
