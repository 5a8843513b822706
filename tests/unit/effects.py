"""Tables that name, for each setting of a block, the test that fails when its effect is removed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mqcd.config.places import PLACES

_UNIT = Path(__file__).parent


def wrong(root: str, tests: Mapping[str, str], package: str) -> list[str]:
    """What is wrong with a table: settings below `root` without an entry, entries without setting or test.

    A test is `module::name`; the module lies in tests/unit/`package`, or where its directory says: that of
    another package there, or `e2e/`.
    """
    known = {path.removeprefix(root) for path in PLACES if path.startswith(root)}
    problems = [f"{setting}: no entry" for setting in known - tests.keys()]
    problems += [f"{setting}: no such setting" for setting in tests.keys() - known]
    for setting, test in tests.items():
        module, _, name = test.partition("::")
        if name not in _names_in(module, package):
            problems.append(f"{setting}: no {test}")
    return problems


@cache
def _names_in(module: str, package: str) -> frozenset[str]:
    """Names of the tests in a module."""
    where = _UNIT.parent if module.startswith("e2e/") else _UNIT if "/" in module else _UNIT / package
    tree = ast.parse((where / f"{module}.py").read_text())
    return frozenset(
        each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    )
