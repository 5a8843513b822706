"""docs/configuration.md held against the schema: every setting, its gloss, its kind and its default."""

import itertools
import pathlib
import re

from mqcd.config.pending import NO_EFFECT, NOT_YET_RESTRICTING
from mqcd.config.schema import ROWS

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "configuration.md"
HEAD = ["| setting | meaning | kind | default |", "|---|---|---|---|"]


def block_of(path: str) -> str:
    """The path of the block that a row stands in."""
    return path.removesuffix(ROWS[path].name).rstrip("/")


def described(path: str) -> str:
    """The table row of one setting."""
    row = ROWS[path]
    default = f"`{row.default_text}`" if row.default_text else "none"
    cells = [f"`{row.name}`", row.gloss, row.kind.word, default]
    if row.required:
        cells[-1] = "must be given"
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def sections() -> dict[str, list[str]]:
    """The table of settings under each heading that is a path."""
    parts = re.split(r"^#+ `([a-z/]+)`\n", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    return {path: table_of(text) for path, text in zip(parts[::2], parts[1::2], strict=True)}


def table_of(text: str) -> list[str]:
    """The lines of the first table of settings."""
    lines = text[text.index(HEAD[0]) :].splitlines()
    return list(itertools.takewhile(lambda line: line.startswith("|"), lines))


def test_every_setting_is_in_the_document_as_the_code_has_it() -> None:
    expected = {
        block: HEAD + [described(path) for path in paths]
        for block, paths in itertools.groupby(ROWS, key=block_of)
    }
    assert sections() == expected


def test_every_setting_without_effect_is_in_the_document() -> None:
    section = DOCUMENT.read_text().split("\n## Settings without effect\n")[1]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    refused = [f"| `{path}` | {what} |" for path, what in NOT_YET_RESTRICTING.items()]
    ignored = [f"| `{path}` | {why} |" for path, why in NO_EFFECT.items()]
    assert rows == refused + ignored
