"""Nodes -> settings, by the schema: one walk that goes on after each error, to find them all.

Values that do not parse count as left out, so that the walk continues; a caller must check `errors` before it
uses the settings. A value left out, and an empty one, is the default.

The walk follows the schema, not the document: `_block` asks for each of its entries, given or not. What else
the document holds is found beside it. Each element is looked at once, by one of these; its line is noted
first, since remarks name it.

| an element | looked at by | holds |
|---|---|---|
| of a block | `_children` | attributes of the block, elements of its entries |
| holding row values, a list, or either | `_holder` | values, as text or attributes; items of the list |
| of another part | `_free` | text alone |
| that the schema does not have there | `_foreign` | an error, or `_note_pending`, if `pending` names it |
| inside one that `pending` names | `_look_inside` | elements and attributes; an error if it restricts |

A path `at` has list indexes (`mta/deliver/relays/relay[2]@name`): lines and remarks go by it. Schema and
tables have none: `bare` takes them off.
"""

import difflib
import pathlib
import re
from collections.abc import Collection
from typing import Any

from mqcd.config import pending
from mqcd.config.blocks import Block, Given, Many, Row, bare, join
from mqcd.config.document import Node
from mqcd.config.kinds.fields import NONE, BadValue
from mqcd.config.problems import MOST, Remark
from mqcd.config.schema import ROOT, ROWS
from mqcd.config.settings import Settings
from mqcd.config.tokens import Tokens

_LONGEST_NAME = 80
"""Characters of an unknown name that others are compared with: the comparison is quadratic."""
_PASSWORD = re.compile(r"://[^/?#@]*:[^/?#@]*@|\bpassword=", re.IGNORECASE)
"""In a URL, or in words for a connection."""


class TooManyErrors(Exception):
    """The walk has ended early: as many errors were found as are reported."""


class Reader:
    """One walk over one document, and what it found."""

    def __init__(self, file: str, tokens: Tokens) -> None:
        self.errors: list[Remark] = []
        self.warnings: list[Remark] = []
        self.warned = 0
        """All warnings, including ones beyond `MOST` that are not kept."""
        self.lines: dict[str, int] = {}
        """The line of each element and attribute of the document, by its path with list indexes."""
        self.given: set[str] = set()
        """The paths of the values that the document states; also where the value is the default."""
        self.foreign = False
        """Something was found that Mailismus has and mqcd has not."""
        self._file = file
        self._tokens = tokens
        self._defaults: dict[str, Any] = {}
        """Values by path: a list may ask for the same default many thousand times."""

    def read(self, root: Node) -> Settings:
        """The settings of a document, nothing inherited yet."""
        if root.name != ROOT.name:
            self.error("", f"<{root.name}> is not a configuration: expected <{ROOT.name}>")
            return Settings()
        settings: Settings = self._block(ROOT, root, "")
        return settings

    def error(self, at: str, text: str) -> None:
        """Note an error. Raises TooManyErrors at the limit."""
        self.errors.append(self.remark(at, text))
        if len(self.errors) >= MOST:
            raise TooManyErrors

    def warn(self, at: str, text: str) -> None:
        """Note a warning; those beyond `MOST` are counted."""
        self.warned += 1
        if len(self.warnings) < MOST:
            self.warnings.append(self.remark(at, text))

    def line_of(self, path: str) -> int:
        """The line of a path, else that of the nearest element around it; 1 for the root."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("/"), path.rfind("@"), 0)]
        return self.lines.get(path, 1)

    def remark(self, path: str, text: str) -> Remark:
        """A text about what stands at a path, list indexes included, with its line."""
        return Remark(file=self._file, line=self.line_of(path), path=path, text=text)

    # ------------------------------------------------------------ blocks

    def _block(self, block: Block, node: Node | None, at: str) -> Any:
        """The settings that a block fills; of one that only groups, the fields by name. No node: defaults."""
        values: dict[str, Any] = {}
        found = {} if node is None else self._children(block, node, at)
        for entry in block.entries:
            name, here = _element(entry), join(at, entry.name)
            # Attributes and lists without an element of their own stand in that of the block.
            holder = found.get(name) if name else node
            if isinstance(entry, Row):
                values[entry.attribute] = self._row(entry, holder, here, block=node)
            elif isinstance(entry, Many):
                values[entry.attribute] = self._many(entry, holder, here)
            elif entry.fills is None:
                values.update(self._block(entry, holder, here))
            else:
                values[entry.attribute] = self._block(entry, holder, here)
        if block.free:
            names = {_element(entry) for entry in block.entries}
            free = {name: child for name, child in found.items() if name not in names}
            values[block.free] = tuple(self._free(child, join(at, name)) for name, child in free.items())
        return values if block.fills is None else block.fills(**values)

    def _many(self, many: Many, node: Node | None, at: str) -> tuple[Any, ...]:
        """The blocks of a list. `-`: none. Left out or empty: as many as by default, made of defaults."""
        listed = [] if node is None else [each for each in node.children if each.name == many.item.name]
        items: list[Node | None] = [*listed]
        if not items and (node is None or node.text != NONE):
            items = [None for _ in many.default]
        made = []
        for index, item in enumerate(items, start=1):
            here = f"{join(at, many.item.name)}[{index}]"
            if item is not None:
                self.lines[here] = item.line
            made.append(self._block(many.item, item, here))
        return tuple(made)

    def _free(self, node: Node, at: str) -> Given:
        """An element that another part gives a meaning."""
        self._attributes(node, (), at)
        for child in node.children:
            self._foreign(child, at, ())
        if _PASSWORD.search(node.text):
            self.error(at, "holds a password: put it into a file of its own, and name that")
        self._has_unknown_token(node.text, at)
        text = self._tokens.expand(node.text)
        self.given.add(at)
        return Given(name=node.name, text=text, path=self._tokens.absolute(pathlib.Path(text)))

    # ------------------------------------------------------------ values

    def _row(self, row: Row, holder: Node | None, at: str, *, block: Node | None) -> Any:
        """The value of a row. `holder`: the element that may hold it; `block`: that of the row's block."""
        text = _text(row, holder)
        if text:
            self.given.add(at)
            return self._value(row, text, at)
        if row.required and block is not None:
            self.error(at, f"must be given: expected {row.kind.expected}")
        return self._default(row, at)

    def _value(self, row: Row, text: str, at: str) -> Any:
        """The value of a text in the file; the default, and an error, if it does not parse."""
        try:
            value = self._parse(row, text)
        except BadValue as error:
            self.error(at, str(error))
            return self._default(row, at)
        if _has_paths(value) and self._has_unknown_token(text, at):
            return value
        if value != self._default(row, at) and pending.is_known(bare(at)):
            # A few rows are read so that they can be shown, and are pending all the same.
            self._note_pending(_text_node(row.name, self.line_of(at), text), at)
        return value

    def _has_unknown_token(self, text: str, at: str) -> bool:
        """Whether a token in a path is replaced by no part: an error."""
        slip = self._tokens.unknown(text)
        if slip is not None:
            known = [f"%{name}%" for name in self._tokens.values]
            self.error(at, f"unknown token {slip}" + _suggest(slip, known))
        return slip is not None

    def _default(self, row: Row, at: str) -> Any:
        path = bare(at)
        if path not in self._defaults:
            text = row.default_text
            self._defaults[path] = self._parse(row, text) if text else row.default
        return self._defaults[path]

    def _parse(self, row: Row, text: str) -> Any:
        if text == NONE and row.default == "" and not row.required:
            return ""
        value = row.kind.parse(self._tokens.expand(text))
        if isinstance(value, tuple) and _has_paths(value):
            return tuple(map(self._tokens.absolute, value))
        return self._tokens.absolute(value) if _has_paths(value) else value

    # ------------------------------------------------------------ what should not be there

    def _children(self, block: Block, node: Node, at: str) -> dict[str, Node]:
        """The elements in that of a block which the block has, by name, but for lists without an element of
        their own."""
        self._stray_text(node, at)
        self._attributes(node, {each.name for each in block.entries if each.name.startswith("@")}, at)
        names = {_element(entry) for entry in block.entries} - {""}
        repeated = {each.item.name for each in block.entries if isinstance(each, Many) and not each.name}
        found: dict[str, Node] = {}
        for child in node.children:
            here = join(at, child.name)
            if child.name in repeated:
                continue
            if child.name not in names and not block.free:
                self._foreign(child, at, names | repeated)
            elif child.name in found:
                self.error(here, f"given again on line {child.line}: keep one of the two")
            else:
                self.lines[here] = child.line
                found[child.name] = child
                self._holder(block, child, here)
        return found

    def _holder(self, block: Block, node: Node, at: str) -> None:
        """An element of a block that holds values or a list. Its text may be a value, `-` no list."""
        rows = [each for each in block.entries if isinstance(each, Row) and each.element == node.name]
        lists = [
            each.item.name for each in block.entries if isinstance(each, Many) and each.name == node.name
        ]
        if not rows and not lists:
            return
        self._attributes(node, {f"@{row.xml_attribute}" for row in rows if row.xml_attribute}, at)
        if any(not row.xml_attribute for row in rows):
            takes_text = all(child.name not in lists for child in node.children)
        else:
            takes_text = bool(lists) and node.text == NONE
        if not takes_text:
            self._stray_text(node, at)
        off = pending.asks_nothing(node.attributes.get("enabled", "Y"))
        for child in node.children:
            # What an element that is switched off would restrict, it does not.
            if child.name not in lists and not (off and pending.is_known(bare(join(at, child.name)))):
                self._foreign(child, at, lists)

    def _stray_text(self, node: Node, at: str) -> None:
        if node.text:
            # Not quoted: what stands in the wrong place may be a password.
            self.error(at, "text stands between elements: remove it, or put it in one of them")

    def _attributes(self, node: Node, known: Collection[str], at: str) -> None:
        for name, text in node.attributes.items():
            here = join(at, f"@{name}")
            self.lines[here] = node.line
            if f"@{name}" in known:
                continue
            if pending.is_known(bare(here)):
                self._note_pending(_text_node(name, node.line, text), here)
            else:
                self.error(here, "unknown attribute" + _suggest(f"@{name}", known, bare(at)))

    def _foreign(self, node: Node, around: str, names: Collection[str]) -> None:
        """An element that the schema does not have here; `names` are those that it has."""
        at = join(around, node.name)
        self.lines.setdefault(at, node.line)
        if pending.is_known(bare(at)):
            self._note_pending(node, at)
        else:
            self.error(at, "unknown element" + _suggest(node.name, names, bare(around)))

    # ------------------------------------------------------------ what has no effect yet

    def _note_pending(self, node: Node, at: str) -> None:
        """An element or attribute that the tables of `pending` name."""
        self.foreign = True
        if node.text:
            self.given.add(at)
        if what := pending.restricts(bare(at), node):
            self._refuse(at, what)
            return
        if why := pending.no_effect(bare(at), node):
            self.warn(at, f"ignored: {why}")
        self._look_inside(node, at)

    def _look_inside(self, node: Node, at: str) -> None:
        """An element that is ignored as a whole, but for what restricts."""
        attributes = (_text_node(f"@{name}", node.line, text) for name, text in node.attributes.items())
        for inside in (*attributes, *node.children):
            here = join(at, inside.name)
            self.lines[here] = inside.line
            if what := pending.restricts(bare(here), inside):
                self._refuse(here, what)
            else:
                self._look_inside(inside, here)

    def _refuse(self, at: str, what: str) -> None:
        self.error(at, f"would restrict {what}, and has no effect yet: take it out to go without")


def _text_node(name: str, line: int, text: str) -> Node:
    """A value as the tables of `pending` look at it, be it an attribute or an element."""
    return Node(name=name, line=line, attributes={}, text=text, children=())


def _has_paths(value: Any) -> bool:
    """Whether a value is a path or a list of them."""
    return isinstance(value[0] if isinstance(value, tuple) and value else value, pathlib.Path)


def _element(entry: Row | Block | Many) -> str:
    return entry.element if isinstance(entry, Row) else entry.name


def _text(row: Row, holder: Node | None) -> str:
    """The text of a row's value, blanks at its ends removed; "" if it is not given."""
    if holder is None:
        return ""
    return (holder.attributes.get(row.xml_attribute, "") if row.xml_attribute else holder.text).strip()


def _suggest(name: str, names: Collection[str], around: str | None = None) -> str:
    """The end of an error about an unknown name: what was probably meant, else where the name belongs, else
    what may stand there.

    `names` are the schema's names there; `around` is the path of the element that holds the name, None of a
    token. What `pending` names may be what was meant, but is not suggested.
    """
    attribute = name.startswith("@")
    effective = [each for each in names if around is None or not pending.is_known(join(around, each))]
    read_over = [] if around is None else pending.known_names(around)
    known = {each.lower(): each for each in (*names, *read_over) if each.startswith("@") is attribute}
    if len(name) <= _LONGEST_NAME and (close := difflib.get_close_matches(name.lower(), known, n=1)):
        return f": did you mean {known[close[0]]}?"
    tail = name if attribute else f"/{name}"
    home = next((home for home in ROWS if around is not None and home.endswith(tail)), None)
    if home:
        return f" here: it belongs at {home}"
    return f": expected one of {', '.join(sorted(effective))}" if effective else ": nothing is expected here"
