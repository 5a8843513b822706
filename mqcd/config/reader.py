"""Nodes -> settings, by the schema: one walk that goes on after each error, to find them all.

Values that do not parse count as left out, so that the walk continues; a caller must check `errors` before it
uses the settings. A value left out, and an empty one, is the default.
"""

import difflib
import pathlib
import re
from collections.abc import Iterable, Sequence
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
    """One walk over one document. Its paths have list indexes; `bare` makes those that the tables have."""

    def __init__(self, file: str, tokens: Tokens) -> None:
        self.errors: list[Remark] = []
        self.warnings: list[Remark] = []
        self.warned = 0
        """All warnings, including ones beyond `MOST` that are not kept."""
        self.lines: dict[str, int] = {}
        """The line of each element and attribute of the document, by its path with list indexes."""
        self.given: set[str] = set()
        """The paths of the values that are not left to their defaults."""
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
        values = self._values(block, node, at)
        return values if block.fills is None else block.fills(**values)

    def _values(self, block: Block, node: Node | None, at: str) -> dict[str, Any]:
        """The fields that a block gives, by name. No node: all of them are defaults."""
        found = {} if node is None else self._children(block, node, at)
        values: dict[str, Any] = {}
        for entry in block.entries:
            if isinstance(entry, Row):
                values[entry.attribute] = self._row(block, entry, node, found, at)
            elif isinstance(entry, Many):
                holder = found.get(entry.name) if entry.name else node
                values[entry.attribute] = self._many(block, entry, holder, join(at, entry.name))
            elif entry.fills is None:
                values.update(self._values(entry, found.get(entry.name), join(at, entry.name)))
            else:
                child = found.get(entry.name)
                values[entry.attribute] = self._block(entry, child, join(at, entry.name))
        if block.free:
            names = {_element(entry) for entry in block.entries}
            values[block.free] = tuple(
                self._free(child, join(at, name)) for name, child in found.items() if name not in names
            )
        return values

    def _free(self, node: Node, at: str) -> Given:
        """An element that another part gives a meaning."""
        self._attributes(node, (), at)
        for child in node.children:
            self._foreign(child, at, ())
        if _PASSWORD.search(node.text):
            self.error(at, "holds a password: put it into a file of its own, and name that")
        slip = self._tokens.unknown(node.text)
        if slip is not None:
            known = [f"%{name}%" for name in self._tokens.values]
            self.error(at, f"unknown token {slip}" + _suggest(slip, known))
        text = self._tokens.expand(node.text)
        self.given.add(at)
        return Given(name=node.name, text=text, path=self._tokens.absolute(pathlib.Path(text)))

    def _many(self, around: Block, many: Many, node: Node | None, at: str) -> tuple[Any, ...]:
        """The blocks of a list. Left out or empty: the default; `-`: none."""
        items: list[Node | None] = [] if node is None else [*self._items(around, many, node, at)]
        if not items and (node is None or node.text != NONE):
            items = [None for _ in many.default]
        here = (f"{join(at, many.item.name)}[{index}]" for index in range(1, len(items) + 1))
        return tuple(self._block(many.item, item, each) for item, each in zip(items, here, strict=True))

    def _items(self, around: Block, many: Many, node: Node, at: str) -> list[Node]:
        items = [child for child in node.children if child.name == many.item.name]
        for index, item in enumerate(items, start=1):
            self.lines[f"{join(at, item.name)}[{index}]"] = item.line
        if not many.name:
            return items
        if many in around.alternatives:
            # The row that the list may stand in place of remarks on everything else.
            return items
        if node.text != NONE:
            self._stray_text(node, at)
        self._attributes(node, set(), at)
        for child in node.children:
            if child.name != many.item.name:
                self._foreign(child, at, [many.item.name])
        return items

    # ------------------------------------------------------------ what is there

    def _children(self, block: Block, node: Node, at: str) -> dict[str, Node]:
        """The known elements of a block by name; remarks on all the others."""
        self._stray_text(node, at)
        self._attributes(node, {e.name for e in block.entries if e.name.startswith("@")}, at)
        names = {_element(entry) for entry in block.entries} - {""}
        repeated = {entry.item.name for entry in block.entries if isinstance(entry, Many) and not entry.name}
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
        return found

    def _stray_text(self, node: Node, at: str) -> None:
        if node.text:
            # Not quoted: what stands in the wrong place may be a password.
            self.error(at, "text stands between elements: remove it, or put it in one of them")

    def _attributes(self, node: Node, known: Iterable[str], at: str) -> None:
        """Note the lines of the known attributes; remarks on the others."""
        known = set(known)
        for name in node.attributes:
            here = join(at, f"@{name}")
            self.lines[here] = node.line
            value = Node(name=name, line=node.line, attributes={}, text=node.attributes[name], children=())
            if f"@{name}" not in known and not self._pending(here, value):
                self.error(here, "unknown attribute" + _suggest(f"@{name}", known, bare(at)))

    def _foreign(self, node: Node, around: str, names: Iterable[str]) -> None:
        """An element that the schema does not have here."""
        at = join(around, node.name)
        self.lines.setdefault(at, node.line)
        if not self._pending(at, node):
            self.error(at, "unknown element" + _suggest(node.name, names, bare(around)))

    def _pending(self, at: str, node: Node) -> bool:
        """Remark on what has no effect yet, also deep inside; False if the tables do not know it."""
        path = bare(at)
        if not pending.is_known(path):
            return False
        self.foreign = True
        if node.text:
            self.given.add(at)
        if not self._refused(at, node):
            if why := pending.no_effect(path, node):
                self.warn(at, f"ignored: {why}")
            self._look_inside(at, node)
        return True

    def _look_inside(self, at: str, node: Node) -> None:
        """Look for what restricts inside an element that is ignored as a whole."""
        for child in node.children:
            here = join(at, child.name)
            self.lines[here] = child.line
            if not self._refused(here, child):
                self._look_inside(here, child)

    def _refused(self, at: str, node: Node) -> bool:
        what = pending.restricts(bare(at), node)
        if what:
            self.error(at, f"would restrict {what}, and has no effect yet: take it out to go without")
        return what is not None

    # ------------------------------------------------------------ values

    def _row(self, block: Block, row: Row, node: Node | None, found: dict[str, Node], at: str) -> Any:
        here = join(at, row.name)
        holder = found.get(row.element) if row.element else node
        if holder is not None and row.element:
            rows = [each for each in block.entries if isinstance(each, Row) and each.element == row.element]
            if row is rows[0]:
                self._only_values(block, rows, holder, join(at, row.element))
        text = _text(row, holder)
        if text:
            self.given.add(here)
            return self._given(row, here, text)
        if row.required and node is not None:
            self.error(here, f"must be given: expected {row.kind.expected}")
        return self._default(row, here)

    def _only_values(self, block: Block, rows: Sequence[Row], holder: Node, at: str) -> None:
        """Remark on what else stands in an element that holds these values."""
        self._attributes(holder, {f"@{row.xml_attribute}" for row in rows if row.xml_attribute}, at)
        lists = [each.item.name for each in block.alternatives if each.name == rows[0].element]
        listed = [child for child in holder.children if child.name in lists]
        if listed or all(row.xml_attribute for row in rows):
            self._stray_text(holder, at)
        off = pending.asks_nothing(holder.attributes.get("enabled", "Y"))
        for child in holder.children:
            if child not in listed and not (off and pending.is_known(bare(join(at, child.name)))):
                self._foreign(child, at, lists)

    def _given(self, row: Row, at: str, text: str) -> Any:
        """The value of a text in the file; the default, and an error, if it does not parse."""
        try:
            value = self._parse(row, text)
        except BadValue as error:
            self.error(at, str(error))
            return self._default(row, at)
        slip = self._tokens.unknown(text) if _has_paths(value) else None
        if slip is not None:
            known = [f"%{name}%" for name in self._tokens.values]
            self.error(at, f"unknown token {slip}" + _suggest(slip, known))
        elif value != self._default(row, at):
            asked = Node(name=bare(at), line=self.line_of(at), attributes={}, text=text, children=())
            self._pending(at, asked)
        return value

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


def _suggest(name: str, names: Iterable[str], around: str | None = None) -> str:
    """The end of an error about an unknown name: what was probably meant, or where the name belongs.

    `names` are the schema's names there; `around` is the path of the element that holds the name, if any.
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
