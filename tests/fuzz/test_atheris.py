"""Each target under the fuzzer itself, for some seconds (MQCD_FUZZ_SECONDS) or as long as one likes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = int(os.environ.get("MQCD_FUZZ_SECONDS", "5"))
_ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS + 300),
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not to be had here"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found(target: str, tmp_path: Path) -> None:
    options = [f"-max_total_time={SECONDS}", "-timeout=20", "-rss_limit_mb=1024", "-malloc_limit_mb=256"]
    fuzzer = [sys.executable, "-m", "tests.fuzz.run", target, *options, "-max_len=16384", "-seed=1"]
    done = subprocess.run(
        # A shell between: the peak of memory of a process begins with that of the one it was made of.
        ["sh", "-c", '"$@"; exit $?', "sh", *fuzzer],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert (done.returncode, found) == (0, {}), done.stderr[-4000:]
    assert "DONE" in done.stderr or "Done" in done.stderr, done.stderr[-2000:]
