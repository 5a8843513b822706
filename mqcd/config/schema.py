"""The whole shape of a configuration file, and each row of it by its path without list indexes.

What is not in it is unknown, unless `pending` names it. Loading, showing and the documents' tests use these.
"""

from collections.abc import Iterator

from mqcd.config.blocks import Block, Many, Row, join, shape
from mqcd.config.settings import Settings

ROOT = shape(Settings, "mailserver")


def _rows(block: Block, path: str = "") -> Iterator[tuple[str, Row]]:
    """Every row of the file in its order, each list of blocks taken once."""
    for entry in block.entries:
        here = join(path, entry.name)
        if isinstance(entry, Block):
            yield from _rows(entry, here)
        elif isinstance(entry, Many):
            yield from _rows(entry.item, join(here, entry.item.name))
        else:
            yield here, entry


ROWS = dict(_rows(ROOT))
"""Every row by its path without list indexes."""
