"""Conditions on recipients in one language for commands, the control socket and rules. Pure.

    expr   = term { "or" term }
    term   = factor { "and" factor }
    factor = "not" factor | "(" expr ")" | field op value | field "in" values
    values = value { "," value } | "(" value { "," value } ")"
    op     = "=" | "!=" | "~" | "<" | ">"

A value is bare (no blank, quote, bracket or comma in it, and no operator in front, but for one in angle
brackets), or stands in quotes of either kind, in which a backslash takes the next character as it is. Words
and texts ignore case. `~` takes a shell pattern, see `pattern`. Fields are in `where_fields`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from mqcd.core.errors import DecodeError
from mqcd.core.model import Recipient
from mqcd.core.selecting.where_fields import FIELDS, IN, LIVE, Field, read_value, test_of
from mqcd.core.value import value

DEEPEST = 50
"""How deep brackets and `not` may nest."""
_RESOLVED = 10
"""So much deeper is what may stand in the place of a live field."""
Row = TypeVar("Row")
Predicate = Callable[[Row], bool]
Reader = Callable[[str], Callable[[Row], Any]]
"""For a path in `where_fields.FIELDS`, a function that reads it from a row: typed as in a `Recipient`."""

_FIELD = re.compile(r"[A-Za-z][\w-]*")
_OP = re.compile(r"!=|[=~<>]|in(?![\w-])", re.IGNORECASE)
_BARE = re.compile(r"<[^\s<>\"'(),]*>|(?![=!~<>])[^\s\"'(),]+")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BLANKS = re.compile(r"\s*")
_AND, _OR, _NOT = (re.compile(rf"{word}(?![\w-])", re.IGNORECASE) for word in ("and", "or", "not"))
_OPEN, _CLOSE, _COMMA = map(re.compile, (r"\(", r"\)", ","))


@value(kw_only=False)
class Compare:
    """A field against a value; against several with `in`."""

    field: str
    op: str
    values: tuple[str, ...]
    """As they were written, without quotes."""

    def __str__(self) -> str:
        shown = [_shown(value) for value in self.values]
        return f"{self.field} {self.op} " + (f"({', '.join(shown)})" if self.op == IN else shown[0])


@value(kw_only=False)
class Not:
    """What the part does not select."""

    part: Node

    def __str__(self) -> str:
        return f"not {_bracketed(self.part, All, AnyOf)}"


@value(kw_only=False)
class All:
    """What each part selects; at least two."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " and ".join(_bracketed(each, All, AnyOf) for each in self.parts)


@value(kw_only=False)
class AnyOf:
    """What at least one part selects, of at least two."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " or ".join(_bracketed(each, AnyOf) for each in self.parts)


Node = Compare | Not | All | AnyOf
NOTHING: Node = Compare("spid", "=", ("0" * 16,))
"""Selects no message: none has this name."""
EVERYTHING: Node = Not(NOTHING)


@value(kw_only=False, slots=False)
class Where:
    """A condition. Its text and `now` are all of it: `parse_where(str(where), where.now) == where`."""

    root: Node
    now: int
    """What `age` and `due` are reckoned from, ms."""

    def __str__(self) -> str:
        return str(self.root)

    def __reduce__(self) -> tuple[Callable[[str, int], Where], tuple[str, int]]:
        return parse_where, (str(self), self.now)

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of the fields that it compares."""
        return frozenset(_named(self.root))

    @cached_property
    def matches(self) -> Predicate[Recipient]:
        """Whether a recipient is selected."""
        return self.on(attrgetter)

    def on(self, read: Reader[Row]) -> Predicate[Row]:
        """The same for rows of another form."""
        return _predicate(self.root, self.now, read)

    def on_some(self, fields: Collection[str], read: Reader[Row]) -> Predicate[Row] | None:
        """Whether a row may be selected of which only `fields` are known; None when they say nothing."""
        root = _weakened(self.root, fields, False)
        return _predicate(root, self.now, read) if root is not None else None


def all_of(*parts: Node) -> Node:
    """What each of these selects, of at least one."""
    return parts[0] if len(parts) == 1 else All(parts)


def any_of(*parts: Node) -> Node:
    """What at least one of these selects; nothing where there are none."""
    if not parts:
        return NOTHING
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def test_of_value(node: Compare) -> Callable[[str], bool]:
    """Whether a comparison of one of the fields in `LIVE` holds for a value."""
    return _comparing(node, 0, lambda _: str)


def parse_where(text: str, now: int, *, live: bool = False) -> Where:
    """The condition that a text says. Raises DecodeError that names the column and what was expected.

    `live`: it may name fields of `LIVE`, which records do not have: before it is evaluated on records,
    `resolved` of `live` puts other conditions in their place.
    """
    return Where(_Parser(text, live).parse(), now)


def _named(node: Node) -> Iterator[str]:
    if isinstance(node, Compare):
        yield node.field
    elif isinstance(node, Not):
        yield from _named(node.part)
    else:
        for each in node.parts:
            yield from _named(each)


def _shown(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bracketed(node: Node, *kinds: type) -> str:
    return f"({node})" if isinstance(node, kinds) else str(node)


def _predicate(node: Node, now: int, read: Reader[Row]) -> Predicate[Row]:
    if isinstance(node, Compare):
        return _comparing(node, now, read)
    if isinstance(node, Not):
        inner = _predicate(node.part, now, read)
        return lambda row: not inner(row)
    parts = tuple(_predicate(each, now, read) for each in node.parts)
    # Loops: each line of a scan goes through one, and a generator would double its cost.
    return _all_of(parts) if isinstance(node, All) else _any_of(parts)


def _all_of(parts: tuple[Predicate[Row], ...]) -> Predicate[Row]:
    def all_of(row: Row) -> bool:
        for part in parts:  # noqa: SIM110
            if not part(row):
                return False
        return True

    return all_of


def _any_of(parts: tuple[Predicate[Row], ...]) -> Predicate[Row]:
    def any_of(row: Row) -> bool:
        for part in parts:  # noqa: SIM110
            if part(row):
                return True
        return False

    return any_of


def _comparing(node: Compare, now: int, read: Reader[Row]) -> Predicate[Row]:
    field = _field(node.field, live=True)
    test = test_of(field.kind, node.op, tuple(read_value(field.kind, node.op, each) for each in node.values))
    getters = [read(path) for path in field.paths]
    if field.made is None:
        [get] = getters
        return lambda row: test(get(row))
    made = field.made(now)
    if len(getters) == 1:
        [get] = getters
        return lambda row: test(made(get(row)))
    return lambda row: test(made(*[get(row) for get in getters]))


def _field(name: str, *, live: bool) -> Field:
    """A field that records have, or one of `LIVE` if `live`. Raises DecodeError."""
    if live and name in LIVE:
        return LIVE[name]
    if name not in FIELDS:
        raise DecodeError(f"expected a field ({', '.join(FIELDS)}), not {name}")
    field = FIELDS[name]
    if field is None:
        raise DecodeError(f"{name} follows from the configuration and DNS, and is in no record")
    return field


def _weakened(node: Node, fields: Collection[str], negated: bool) -> Node | None:
    """A condition on `fields` alone that holds wherever the node does, or its contrary if `negated`; None
    is the one that always holds."""
    if isinstance(node, Compare):
        if node.field not in fields:
            return None
        return Not(node) if negated else node
    if isinstance(node, Not):
        return _weakened(node.part, fields, not negated)
    parts = [_weakened(each, fields, negated) for each in node.parts]
    known = tuple(each for each in parts if each is not None)
    if isinstance(node, All) is not negated:
        return All(known) if known else None
    return AnyOf(known) if len(known) == len(parts) else None


class _Parser:
    """Reads a text from left to right; what may stand at a place decides what is looked for there."""

    def __init__(self, text: str, live: bool) -> None:
        self._text = text
        self._live = live
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._or()
        if self._at < len(self._text):
            self._fail("and, or, or the end")
        return node

    def _or(self) -> Node:
        parts = [self._and()]
        while self._take(_OR):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _and(self) -> Node:
        parts = [self._factor()]
        while self._take(_AND):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _factor(self) -> Node:
        self._depth += 1
        if self._depth > DEEPEST + (0 if self._live else _RESOLVED):
            self._fail(f"brackets and not at most {DEEPEST} deep")
        node: Node
        if self._take(_NOT):
            node = Not(self._factor())
        elif self._take(_OPEN):
            node = self._or()
            if not self._take(_CLOSE):
                self._fail("and, or, or )")
        else:
            node = self._compare()
        self._depth -= 1
        return node

    def _compare(self) -> Compare:
        start = self._skip()
        found = self._take(_FIELD)
        if found is None:
            self._fail("a field such as domain")
        name = found[0].lower()
        try:
            field = _field(name, live=self._live)
        except DecodeError as error:
            raise DecodeError(f"column {start + 1}: {error}") from None
        op = self._op(name, field)
        return Compare(name, op, self._values(field, op))

    def _op(self, name: str, field: Field) -> str:
        found = self._take(_OP)
        op = found[0].lower() if found is not None else ""
        if found is None or op not in field.kind.ops:
            self._at = found.start() if found is not None else self._at
            self._fail(f"{', '.join(field.kind.ops[:-1])} or {field.kind.ops[-1]} after {name}")
        return op

    def _values(self, field: Field, op: str) -> tuple[str, ...]:
        bracket = op == IN and self._take(_OPEN)
        values = [self._value(field, op)]
        while op == IN and self._take(_COMMA):
            values.append(self._value(field, op))
        if bracket and not self._take(_CLOSE):
            self._fail(", or )")
        return tuple(values)

    def _value(self, field: Field, op: str) -> str:
        start = self._skip()
        if found := self._take(_QUOTED):
            value = _ESCAPED.sub(r"\1", found[1] if found[1] is not None else found[2])
        elif found := self._take(_BARE):
            value = found[0]
        elif start < len(self._text) and self._text[start] in "\"'":
            self._fail("a closing quote")
        else:
            self._fail(f"a value after {op}")
        try:
            read_value(field.kind, op, value)
        except DecodeError as error:
            self._at = start
            self._fail(f"{error} after {op}")
        return value

    def _skip(self) -> int:
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks is not None else self._at
        return self._at

    def _take(self, token: re.Pattern[str]) -> re.Match[str] | None:
        """What stands here, passed over with the blanks around it; None, and nothing passed, if it is not."""
        found = token.match(self._text, self._skip())
        if found is not None:
            self._at = found.end()
            self._skip()
        return found

    def _fail(self, expected: str) -> NoReturn:
        raise DecodeError(f"column {self._at + 1}: expected {expected}")
