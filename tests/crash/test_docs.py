"""docs/internals.md lists every sync that the source has, and every story."""

from __future__ import annotations

import re

import pytest

from tests.crash.full import BEGIN, DOCS, END
from tests.crash.scenarios import STORIES
from tests.crash.sites import sites

pytestmark = pytest.mark.crash


def _table() -> str:
    return DOCS.read_text().split(BEGIN)[1].split(END)[0]


def test_the_table_lists_the_syncs_that_there_are() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", _table(), re.MULTILINE)
    assert listed == sites(), "run `python -m tests.crash.full --docs`"
    assert "NOT CAUGHT" not in _table()


def test_the_table_lists_the_stories_that_are_reported() -> None:
    listed = re.findall(r"^\| ([^`|]+) \| [\d,]+ \|", _table(), re.MULTILINE)
    assert listed == list(STORIES)
