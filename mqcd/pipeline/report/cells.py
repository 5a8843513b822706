"""Tables of the page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqcd.pipeline.report.charts import meter
from mqcd.pipeline.report.markup import Markup, joined, stranger, tag
from mqcd.pipeline.report.words import number, share


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column's head, and the class of its cells: `n` numbers, `m` numbers with a bar, `long` words."""

    name: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row: the first cell is its head."""

    cells: Sequence[str]
    rest: bool = False
    """Whether it stands for others."""


def table(caption: str, columns: Sequence[Column], lines: Sequence[Line], *, narrow: bool = False) -> Markup:
    """A table; one that is not `narrow` a small screen shows as one block a row. The roles keep it a table
    for screen readers then."""
    heads = [
        tag("th", column.name, scope="col", role="columnheader", class_=_kind(column) or None)
        for column in columns
    ]
    body = [_row(columns, line) for line in lines]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads, role="row"), role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        class_="narrow" if narrow else "stack",
        role="table",
    )
    return tag("div", made, class_="scroll")


def plain(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table of numbers, for those whom a chart tells nothing; it scrolls in its box."""
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, class_="n") for cell in row[1:]))
        for row in rows
    ]
    columns = [
        tag("th", head, scope="col", class_="n" if index else None) for index, head in enumerate(heads)
    ]
    made = tag("table", tag("caption", caption), tag("thead", tag("tr", *columns)), tag("tbody", *body))
    # A box that scrolls has to be reached by keyboard too.
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _row(columns: Sequence[Column], line: Line) -> Markup:
    head, *others = line.cells
    cells = [
        tag("td", cell, role="cell", data_name=column.name, class_=_kind(column) or None)
        for column, cell in zip(columns[1:], others, strict=True)
    ]
    first = tag("th", head, scope="row", role="rowheader")
    return tag("tr", first, *cells, role="row", class_="rest" if line.rest else None)


def _kind(column: Column) -> str:
    return "n m" if column.kind == "m" else column.kind


def rate(part: int, whole: int, colour: str) -> Markup:
    """A share with a bar below."""
    if not whole:
        return joined(share(part, whole))
    return tag("span", share(part, whole), tag("span", meter(part / whole, colour), class_="track"))


def amount(value: int, most: int, colour: str) -> Markup:
    """A number with a bar below, as long as its part of the greatest."""
    bar = tag("span", meter(value / most if most else 0, colour), class_="track")
    return tag("span", number(value), bar)


def reply(code: int | None, status: str | None, text: str) -> Markup:
    """What a server said; an answer of several lines as one."""
    said = " ".join(text.split())
    head = " ".join(str(part) for part in (code, status) if part and not said.startswith(str(part)))
    if status and said.startswith(f"{code} {status}"):
        head = ""
    return tag("span", stranger(f"{head} {said}".strip() or "no words"), class_="reply")
