"""What holds for every test: which commands it needs, and that CI skips nothing.

`@pytest.mark.needs("swaks", "postfix")` skips a test where a command is not installed, and says
which. With CI=true in the environment a skipped test, or a skipped module, is a failure.
MQCD_FAILED_STEPS (set by tests/run) repeats at the end what failed before the tests.

With several processes (`--dist=loadfile`) each file's tests go to one of them, and all that use one Spark to
the same one, whose Java is warm by then. What takes longest comes first, so that the processes end together.
"""

import gc
import logging
import os
import shutil
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

# How long an example takes is the machine's affair: no test is to fail because others use it, too.
settings.register_profile("mqcd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mqcd")

# Tests start thousands of processes of this program: none is to compile it anew, whatever the shell says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# smtp-source and postfix lie in sbin, which not every user's PATH has.
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


_SPARK = "tests/pipeline/"
_OTHER_SPARKS = tuple(f"{_SPARK}test_{name}.py" for name in ("java", "processes"))
"""Files that start Java in processes of their own: they need not wait for the others."""
_LONGEST = (_SPARK, "tests/crash/", "tests/e2e/")


def unit_of(nodeid: str) -> str:
    """What a test runs together with, in one process: its file, or all that use one Spark."""
    file = nodeid.partition("::")[0]
    return _SPARK if file.startswith(_SPARK) and file not in _OTHER_SPARKS else file


class Spread(LoadFileScheduling):  # type: ignore[misc]
    """Hands out units instead of files, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """In place of `--dist=loadfile`."""
    if config.getoption("dist") != "loadfile":
        return None
    # It would begin with files of many tests, and leave those of few, long ones until the end.
    config.option.loadscopereorder = False
    return Spread(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first; the order is otherwise as it was."""
    items.sort(key=lambda item: _rank(unit_of(item.nodeid)))


def _rank(unit: str) -> int:
    return next((rank for rank, start in enumerate(_LONGEST) if unit.startswith(start)), len(_LONGEST))


# What is imported and collected is no garbage, and half of what a collection would visit.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True)
def level_of_our_log() -> Iterator[None]:
    """What a command that runs in a test's process makes of it ends with the test."""
    log = logging.getLogger("mqcd")
    level = log.level
    yield
    log.setLevel(level)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose commands are not there; the reason names them."""
    needed = {str(command) for mark in item.iter_markers("needs") for command in mark.args}
    missing = sorted(command for command in needed if shutil.which(command, path=_PATH) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; as root, tests/run installs it")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test's report; under CI a failed one in place of a skipped one (an xfail stays one)."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and _ci():
        report.outcome = "failed"
        report.longrepr = _refusal(report.longrepr)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as a whole."""
    report = yield
    if report.skipped and _ci():
        report.outcome = "failed"
        report.longrepr = _refusal(report.longrepr)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the steps of tests/run that failed, where the reader of the last lines sees it."""
    failed = os.environ.get("MQCD_FAILED_STEPS")
    if failed:
        terminalreporter.section("tests/run", red=True, bold=True)
        terminalreporter.line(f"failed before the tests: {failed}", red=True)


def _ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def _refusal(longrepr: object) -> str:
    # A skip's longrepr is (file, line, reason).
    reason = longrepr[2] if isinstance(longrepr, tuple) else longrepr
    return f"CI=true allows no skip: {reason}"
