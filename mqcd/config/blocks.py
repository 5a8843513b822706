"""What tables of a configuration file's shape are made of: rows, blocks, and lists of blocks."""

import dataclasses
from typing import Any

from mqcd.config.fields import Kind


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One value: the text of an element, an attribute of the block, or of an element that holds it."""

    name: str
    """Element name, `@name` for an attribute of the block, `element@name` for one of an element."""
    kind: Kind[Any]
    attribute: str
    """The field of the block's settings class."""
    required: bool = False

    @property
    def element(self) -> str:
        """The element that holds the value; "" where the block itself does."""
        return self.name.partition("@")[0]

    @property
    def xml_attribute(self) -> str:
        """The XML attribute that holds the value; "" where the element's text does."""
        return self.name.partition("@")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """An element with entries of its own."""

    name: str
    fills: type[Any] | None
    """The settings class; None: the block only groups, its entries belong to the one around it."""
    attribute: str = ""
    """The field that holds the result in the settings of the block around it."""
    entries: "tuple[Row | Block | Many, ...]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Many:
    """Any number of blocks of one name, in an element that holds nothing else."""

    name: str
    """The element around them; "" where they stand in the block itself."""
    attribute: str
    item: Block


Entry = Row | Block | Many


def row(name: str, kind: Kind[Any], attribute: str = "", *, required: bool = False) -> Row:
    """A row; without `attribute` the field is named as the element or XML attribute is."""
    field = attribute or name.rpartition("@")[2]
    return Row(name=name, kind=kind, attribute=field, required=required)


def join(path: str, name: str) -> str:
    """The path of an entry within the block at `path`: `mta/queue/rootpath`, `ops@port`."""
    return path + name if not name or name.startswith("@") or not path else f"{path}/{name}"
