"""Which tests go together when several processes share them, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import Spread, pytest_collection_modifyitems, pytest_xdist_make_scheduler, unit_of


def test_spark_tests_are_one_unit_other_files_their_own() -> None:
    assert unit_of("tests/pipeline/test_a.py::test") == unit_of("tests/pipeline/test_b.py::test[x::y]")
    assert unit_of("tests/unit/pipeline/test_a.py::test") == "tests/unit/pipeline/test_a.py"
    assert unit_of("tests/e2e/test_a.py::Kind::test") == "tests/e2e/test_a.py"


def test_the_longest_tests_come_first() -> None:
    names = ["unit/b", "e2e/z", "contract/a", "pipeline/x", "crash/m", "e2e/a", "unit/a", "pipeline/a"]
    items = [SimpleNamespace(nodeid=f"tests/{name}.py::test") for name in names]
    pytest_collection_modifyitems(cast(list[pytest.Item], items))
    order = [item.nodeid.removeprefix("tests/").partition(".")[0] for item in items]
    assert order == [
        "pipeline/x", "pipeline/a", "crash/m", "e2e/z", "e2e/a", "unit/b", "contract/a", "unit/a",
    ]  # fmt: skip


class Config(SimpleNamespace):
    def getoption(self, name: str) -> Any:
        return getattr(self.option, name)

    def getvalue(self, name: str) -> Any:
        return self.getoption(name)


@pytest.mark.parametrize(("dist", "ours"), [("loadfile", True), ("load", False)])
def test_it_is_asked_for_by_loadfile(dist: str, ours: bool) -> None:
    option = SimpleNamespace(dist=dist, loadscopereorder=True, tx=["popen"], numprocesses=1)
    made = pytest_xdist_make_scheduler(cast(pytest.Config, Config(option=option)), None)
    assert isinstance(made, Spread) is ours
    assert option.loadscopereorder is not ours
