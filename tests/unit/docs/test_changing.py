"""docs/changing.md, and a message's way in internals.md: files exist, and have the names beside them."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "changing.md"
_QUOTED = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"[\w./-]+\.(?:py|json|html|md|xml)|[\w-]+(?:/[\w-]+)+/?")
_NAME = re.compile(r"_?[A-Za-z]\w*(?:\.\w+)*")
ROOMS = (ROOT / "docs" / "internals.md").read_text("utf-8").partition("## The rooms")[2].partition("\n## ")[0]
TEXT = PAGE.read_text("utf-8") + ROOMS
PARTS = [part for part in re.split(r"\n(?=\|)|\n\n", TEXT) if _QUOTED.search(part)]
"""Rows of tables, and paragraphs."""


@lru_cache
def words_of(path: Path) -> frozenset[str]:
    files = path.rglob("*.*") if path.is_dir() else [path]
    texts = [each.read_text("utf-8") for each in files if each.suffix in (".py", ".json", ".html", ".md")]
    return frozenset(re.findall(r"\w+", "\n".join(texts)))


def find(word: str, here: Path) -> Path | None:
    """A bare name is that of a file beside the one before it."""
    return next((path for path in (ROOT / "mqcd" / word, ROOT / word, here / word) if path.exists()), None)


@pytest.mark.parametrize("part", PARTS, ids=[str(number) for number in range(len(PARTS))])
def test_files_and_names_are_there(part: str) -> None:
    quoted = _QUOTED.findall(part)
    files = [ROOT / "mqcd"]
    for word in filter(_FILE.fullmatch, quoted):
        found = find(word, files[-1] if files[-1].is_dir() else files[-1].parent)
        assert found is not None, word
        files.append(found)
    known = frozenset[str]().union(*map(words_of, files[1:] or files))
    names = [word for word in quoted if _NAME.fullmatch(word) and not _FILE.fullmatch(word)]
    assert [name for name in names if not known.issuperset(name.split("."))] == []
