"""The shape of a configuration file: rows, blocks and lists of blocks, derived from the settings classes.

A field of a settings class that is made by `setting` or `attribute` is a row, one by `block` a block, one by
`many` a list of blocks, one by `free` the elements of a block whose names are not known here. In the file a
class's own rows come first, then inherited rows, then its blocks. These are field specifiers, meant for the
class body: RUF009 is off there.
"""

import dataclasses
import pathlib
import re
from itertools import groupby
from typing import Any, TypeVar

from mqcd.config.kinds.fields import Kind, Optional
from mqcd.core.value import value

Value = TypeVar("Value")


@value
class Row:
    """One value: the text of an element, an attribute of the block, or of an element that holds it."""

    name: str
    """Element name, `@name` for an attribute of the block, `element@name` for one of an element."""
    kind: Kind[Any]
    attribute: str
    """The field of the block's settings class."""
    default: Any
    """Tokens not yet replaced."""
    gloss: str
    """What it means, with its unit."""
    required: bool = False

    @property
    def element(self) -> str:
        """The element that holds the value; "" where the block itself does."""
        return self.name.partition("@")[0]

    @property
    def xml_attribute(self) -> str:
        """The XML attribute that holds the value; "" where the element's text does."""
        return self.name.partition("@")[2]

    @property
    def default_text(self) -> str:
        """The default as it would stand in the file; "" where it is empty or must be given."""
        return "" if self.required or self.default in ("", None, ()) else self.kind.show(self.default)


@value
class Block:
    """An element with entries of its own."""

    name: str
    fills: type[Any] | None
    """The settings class; None: the block only groups, its entries belong to the one around it."""
    attribute: str = ""
    """The field that holds the result in the settings of the block around it."""
    entries: "tuple[Row | Block | Many, ...]"
    free: str = ""
    """The field that holds the elements of other names, as `Given`; "" = there may be none."""

    @property
    def alternatives(self) -> "list[Many]":
        """The lists that may stand in an element in place of its value."""
        elements = {entry.element for entry in self.entries if isinstance(entry, Row)} - {""}
        return [entry for entry in self.entries if isinstance(entry, Many) and entry.name in elements]


@value
class Given:
    """An element of which another part knows the meaning."""

    name: str
    text: str
    """Blanks at its ends removed, tokens replaced."""
    path: pathlib.Path
    """The text as a path, made absolute."""


@value
class Many:
    """Any number of blocks of one name, in an element that holds nothing else. That may be the element of a
    row: then it holds a value or a list."""

    name: str
    """The element around them; "" where they stand in the block itself."""
    attribute: str
    item: Block
    default: Any
    """The items where the element is left out or empty."""


Entry = Row | Block | Many


def setting(default: Value, gloss: str, kind: Kind[Any], *, at: str = "", required: bool = False) -> Value:
    """A dataclass field for one value.

    `gloss` says in a phrase what it means, `at` where it stands (see `Row.name`) if not in an element of the
    field's name. Where the default is None, `-` in the file is none, too.
    """
    wanted = Optional(kind) if default is None else kind
    metadata = {"gloss": gloss, "kind": wanted, "at": at, "required": required}
    return dataclasses.field(default=default, metadata=metadata)


def attribute(default: Value, gloss: str, kind: Kind[Any], *, required: bool = False) -> Value:
    """The same for a value that stands in the block's attribute of the field's name."""
    return setting(default, gloss, kind, at="@", required=required)


def block(default: Value, *, within: str = "") -> Value:
    """A dataclass field for a block of its name; `within` is an element that only groups blocks."""
    return dataclasses.field(default=default, metadata={"within": within})


def many(
    item: type[Value], name: str, *, at: str | None = None, default: tuple[Value, ...] = ()
) -> tuple[Value, ...]:
    """A dataclass field for blocks called `name`, in an element `at` (None: of the field's name)."""
    return dataclasses.field(default=default, metadata={"item": item, "name": name, "at": at})


def free() -> tuple[Given, ...]:
    """A dataclass field for the elements of a block that have other names than its fields."""
    return dataclasses.field(default=(), metadata={"free": True})


def shape(fills: type[Any], name: str, attribute: str = "") -> Block:
    """The block that fills a settings class."""
    fields = dataclasses.fields(fills)
    inherited = {field.name for base in fills.__mro__[1:-1] for field in dataclasses.fields(base)}
    others = [field.name for field in fields if "free" in field.metadata]
    fields = tuple(field for field in fields if "free" not in field.metadata)
    rows = [field for field in fields if "kind" in field.metadata]
    rows.sort(key=lambda field: field.name in inherited)
    groups = groupby(
        (field for field in fields if "kind" not in field.metadata),
        key=lambda field: str(field.metadata.get("within", "")),
    )
    entries: list[Entry] = [_row(field) for field in rows]
    for within, members in groups:
        blocks = tuple(_block(field) for field in members)
        entries += [Block(name=within, fills=None, entries=blocks)] if within else blocks
    return Block(name=name, fills=fills, attribute=attribute, entries=tuple(entries), free="".join(others))


def _row(field: "dataclasses.Field[Any]") -> Row:
    metadata = field.metadata
    at = metadata["at"]
    return Row(
        name=f"@{field.name}" if at == "@" else at or field.name,
        kind=metadata["kind"],
        attribute=field.name,
        default=field.default,
        gloss=metadata["gloss"],
        required=metadata["required"],
    )


def _block(field: "dataclasses.Field[Any]") -> Block | Many:
    metadata = field.metadata
    if "item" not in metadata:
        return shape(type(field.default), field.name, field.name)
    name = field.name if metadata["at"] is None else metadata["at"]
    item = shape(metadata["item"], metadata["name"])
    return Many(name=name, attribute=field.name, item=item, default=field.default)


def join(path: str, name: str) -> str:
    """The path of an entry within the block at `path`: `mta/queue/rootpath`, `ops@port`."""
    return path + name if not name or name.startswith("@") or not path else f"{path}/{name}"


def bare(path: str) -> str:
    """A path without list indexes, as the schema and the tables have it."""
    return re.sub(r"\[[0-9]+\]", "", path) if "[" in path else path
