"""Tables of the page, and what stands in their cells. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from markupsafe import Markup

from mqcd.core.value import value
from mqcd.pipeline.report.templates import macro
from mqcd.pipeline.report.words import number, plural, share

Row = TypeVar("Row")

stranger = macro("cells.html", "stranger")
"""Text that somebody else has written, cut, and kept apart from the writing direction around it."""
numbers = macro("cells.html", "numbers")
"""A table of numbers, of caption, heads and rows: what a chart shows, for those who cannot see it."""
card = macro("cells.html", "card")
under = macro("cells.html", "under")
stacked = macro("cells.html", "stacked")
code = macro("cells.html", "code")
attention = macro("cells.html", "attention")
_table = macro("cells.html", "table")
_reply = macro("cells.html", "reply")
_bar = macro("cells.html", "bar")


@value(kw_only=False)
class Column(Generic[Row]):
    """A column of a table; that of the first one is the head of its row."""

    name: str
    kind: str
    """Of its cells: `n` numbers, `m` numbers with a bar, `long` words, `name` names; "" = any."""
    cell: Callable[[Row], str]

    @property
    def style(self) -> str:
        return "n m" if self.kind == "m" else self.kind


Columns = Sequence[Column[Row]]


def table(
    caption: str,
    columns: Columns[Row],
    rows: Sequence[Row],
    rest: Sequence[str] = (),
    *,
    narrow: bool = False,
) -> Markup:
    """A table of rows; `rest`: cells of one more, which stands for all others. Unless it is `narrow`, a small
    screen shows a row as a block."""
    return _table(caption, columns, [[column.cell(row) for column in columns] for row in rows], rest, narrow)


def rest_of(columns: Columns[Row], left: int, sums: Row) -> Sequence[str]:
    """Cells for all that is left: how many, and what they come to. None where none is left."""
    return (plural(left, "other"), *(column.cell(sums) for column in columns[1:])) if left else ()


def rate(part: int, whole: int, colour: str) -> str:
    """A share with a bar below."""
    return _bar(share(part, whole), _width(part / whole), colour) if whole else share(part, whole)


def amount(value: int, most: int, colour: str) -> Markup:
    """A number with a bar below, as long as its part of the greatest."""
    return _bar(number(value), _width(value / most if most else 0), colour)


def _width(part: float) -> str:
    width = 100 * min(max(part, 0), 1)
    return f"{width:.1f}" if width else ""


def reply(code: int | None, status: str | None, text: str) -> Markup:
    """A server's reply; one of several lines as one."""
    said = " ".join(text.split())
    head = " ".join(str(part) for part in (code, status) if part and not said.startswith(str(part)))
    if status and said.startswith(f"{code} {status}"):
        head = ""
    return _reply(f"{head} {said}".strip() or "no words")
