"""The store of docs/stores.md is the one that the contract suite runs on."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import sqlite_store


def test_the_example_is_a_store_that_is_tested() -> None:
    documents = Path(__file__).parents[3] / "docs" / "stores.md"
    assert Path(sqlite_store.__file__).read_text() in documents.read_text()
