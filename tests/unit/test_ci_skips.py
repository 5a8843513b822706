"""A skipped test is a failure where CI=true says so, and nowhere else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

SUITE = {
    "test_marked.py": """
import pytest

@pytest.mark.skip(reason="not today")
def test_marked():
    raise AssertionError

@pytest.mark.needs("no-such-command")
def test_needing():
    raise AssertionError

@pytest.mark.needs("sh")
def test_provided():
    pass

def test_inside():
    pytest.skip("found out late")

@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    raise AssertionError
""",
    "test_module.py": """
import pytest

pytest.skip("as a whole", allow_module_level=True)
""",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A small tree of tests under this project's conftest."""
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    for name, text in SUITE.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -ra --strict-markers\nmarkers =\n    needs(*commands): as usual\n"
    )
    return tmp_path


def run(suite: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "CI", "MQCD"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"],
        cwd=suite,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def test_skips_are_skips_and_name_what_is_missing(suite: Path) -> None:
    done = run(suite)
    assert done.returncode == 0
    assert "1 passed, 4 skipped, 1 xfailed" in done.stdout.splitlines()[-1]
    assert "not installed: no-such-command" in done.stdout


def test_ci_makes_every_skip_a_failure(suite: Path) -> None:
    done = run(suite, CI="true")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "1 failed, 1 passed, 1 xfailed, 3 errors" in lines[-1]
    for reason in ("not today", "no-such-command", "found out late", "as a whole"):
        assert any("CI=true allows no skip" in line and reason in line for line in lines)


def test_steps_that_failed_before_are_repeated_at_the_end(suite: Path) -> None:
    done = run(suite, MQCD_FAILED_STEPS="mypy,ruff check")
    assert "failed before the tests: mypy,ruff check" in done.stdout
