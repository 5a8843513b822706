"""docs/internals.md, where to make a change: what its tables name is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals.md"
_QUOTED = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"[\w./-]+\.(?:py|json|html|md)|[\w-]+(?:/[\w-]+)+/?")
_NAME = re.compile(r"_?[A-Z]\w*(?:\.\w+)*|_\w+")


def rows() -> list[list[str]]:
    """What the cells of each row quote."""
    text = PAGE.read_text().partition("\n## The rooms\n")[2].partition("\n## ")[0]
    return [_QUOTED.findall(line) for line in text.splitlines() if line.startswith("|")]


def test_the_files_that_the_tables_name_exist() -> None:
    missing = []
    for row in rows():
        here = ROOT
        for word in filter(_FILE.fullmatch, row):
            # A bare name is that of a file beside the one before it.
            found = [path for path in (ROOT / "mqcd" / word, ROOT / word, here / word) if path.exists()]
            if found:
                here = found[0].parent
            else:
                missing.append(word)
    assert missing == []


def test_the_names_that_the_tables_name_exist() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "mqcd").rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    names = [word for row in rows() for word in row if _NAME.fullmatch(word)]
    assert names
    assert [name for name in names if not known.issuperset(name.split("."))] == []
