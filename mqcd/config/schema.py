"""The whole shape of a configuration file, and each row of it by its path without list indexes.

What is not in it is unknown, unless `pending` names it. Loading, showing and the documents' tests use these.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from mqcd.config.blocks import Block, Many, Row, default_of, gloss_of, join, shape
from mqcd.config.settings import Settings

ROOT = shape(Settings, "mailserver")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A row where it stands in the file."""

    path: str
    fills: type[Any]
    """The settings class that holds the value."""
    row: Row

    @property
    def default(self) -> Any:
        """The default, tokens not yet replaced."""
        return default_of(self.fills, self.row.attribute)

    @property
    def default_text(self) -> str:
        """The default as it would stand in the file; "" where it is empty or must be given."""
        if self.row.required or self.default in ("", None, ()):
            return ""
        return self.row.kind.show(self.default)

    @property
    def gloss(self) -> str:
        """What the setting means, with its unit."""
        return gloss_of(self.fills, self.row.attribute)


def places(block: Block = ROOT, path: str = "") -> Iterator[Place]:
    """Every row of the file in its order, each list of blocks taken once."""
    for entry in block.entries:
        here = join(path, entry.name)
        if isinstance(entry, Block):
            yield from places(entry, here)
        elif isinstance(entry, Many):
            yield from places(entry.item, join(here, entry.item.name))
        elif block.fills is not None:
            yield Place(path=here, fills=block.fills, row=entry)


PLACES = {place.path: place for place in places()}
"""Every row by its path without list indexes."""
