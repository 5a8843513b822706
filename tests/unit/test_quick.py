"""`bash tests/run quick` needs nothing but Python: it imports no package of the extra `pipeline`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
QUICK = ("unit", "contract", "fuzz")
_WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "pyarrow", "pandas", "numpy"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Without())
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_what_quick_collects_needs_no_spark() -> None:
    files = [path for name in QUICK for path in (TESTS / name).rglob("test_*.py")]
    near = [str(path) for path in files if "pipeline" in str(path) or "mqcd.pipeline" in path.read_text()]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *near], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
