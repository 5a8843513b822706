"""Commands of mqcd in the tests' own process, where Spark runs already; and tables read without Spark."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from mqcd.cli.main import main
from mqcd.pipeline.store.store import Store


def say(conf: Path, var: Path, *words: str) -> tuple[int, str]:
    """The exit code of `mqcd pipeline ...`, and what it says."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = main(["pipeline", *words, "-c", str(conf), "--var", str(var)])
    return code, said.getvalue()


def ask(conf: Path, var: Path, *words: str) -> tuple[int, Any]:
    """The same with `--json`: what it says in its only line."""
    code, said = say(conf, var, *words, "--json")
    return code, json.loads(said)


def table(store: Store, name: str, *columns: str) -> list[dict[str, Any]]:
    """The rows of a table as its files hold them: some columns, or all but the day."""
    found = ds.dataset(store.files(name), format="parquet").to_table(columns=list(columns) or None)
    return [dict(row) for row in found.to_pylist()]
