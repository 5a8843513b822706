"""`queue stat --by`: ages of what waits, by destination, recipient domain, last reply, or by area.

Every record is read once; memory grows with the number of rows, not of recipients.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mqcd.cli.options import json_line
from mqcd.core.address import domain_of
from mqcd.core.display import ago, printable, size
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import Area
from mqcd.core.selecting.live import Origins
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import Where
from mqcd.queue.format import record
from mqcd.queue.reading.shards import Snapshots

if TYPE_CHECKING:
    from mqcd.daemon.control.view import View

_MINUTE = 60_000
_AGES = ("5m", "15m", "1h", "4h", "12h", "1d", "3d", "older")
"""Columns: younger than this, and not in the column before."""
_BOUNDS = tuple(minutes * _MINUTE for minutes in (5, 15, 60, 240, 720, 1440, 4320))
_AREAS = tuple(area.value for area in Area)
_MOST = 30
"""Rows for people; the rest is one row."""
_PIPE = 1000
"""Columns of a table that goes to no terminal: nothing is folded."""
_REST = "(others)"
_NO_REPLY = "(none yet)"

Glimpse = tuple[str, str, int, int, str]
"""Of one recipient: area, row, time of acceptance, size, last reply."""


@dataclass(slots=True)
class Row:
    """One row: counts by column, octets, the oldest acceptance in ms, one reply as an example."""

    counts: list[int]
    octets: int = 0
    oldest: int = 0
    example: str = ""

    @property
    def total(self) -> int:
        return sum(self.counts)

    def add(self, other: Row) -> None:
        """Take another row into this one."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.octets += other.octets
        self.oldest = min(filter(None, (self.oldest, other.oldest)), default=0)


@dataclass(slots=True)
class Shape:
    """A table: its columns, and its rows by name."""

    by: str
    columns: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)

    def row(self, name: str) -> Row:
        """The row of this name, made if it is new."""
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = Row([0] * len(self.columns))
        return row

    def ordered(self) -> Iterator[tuple[str, Row]]:
        """Ages from young to old, other rows with most recipients first."""
        if self.by == "age":
            return iter(self.rows.items())
        return iter(sorted(self.rows.items(), key=lambda item: (-item[1].total, item[0])))


def shape_of(
    snapshot: Snapshots | View, by: str, now: int, sites: Mapping[str, str], origins: Origins
) -> Shape:
    """Count all recipients. `by`: destination, domain, reply or age; `sites`: those of the domains, for mail
    that none of `origins` takes. Raises StoreBusy."""
    shape = Shape(by, _AREAS if by == "age" else _AGES)
    if by == "age":
        shape.rows = {age: Row([0] * len(_AREAS)) for age in _AGES}
    name_of = _NAMES[by]
    tests = [(Where(each, now).on(_reader), site) for each, site in origins] if by == "destination" else []

    def glimpsed(text: str, _begun: bool) -> Glimpse:
        own = record.halves(text)
        site = next((site for fits, site in tests if fits(own)), None)
        return _glimpse(own, name_of(own) if site is None else site)

    for batch in snapshot.project(Selection(), glimpsed):
        for area, name, received, octets, reply in batch:
            age = bisect_right(_BOUNDS, now - received)
            name = sites.get(name) or name
            row = shape.row(_AGES[age] if by == "age" else name)
            row.counts[_AREAS.index(area) if by == "age" else age] += 1
            row.octets += octets
            row.oldest = min(row.oldest or received, received)
            row.example = row.example or reply
    return shape


def _reader(path: str) -> Callable[[list[str]], str]:
    """Reads from a line's halves what an origin is known by."""
    name = path.rpartition(".")[2]
    own = {"address": lambda own: own[11], "route": _route}
    return own.get(name, lambda own: str(getattr(_shared(own[-1]), name)))


def _route(own: list[str]) -> str:
    return own[13].partition(" ")[0]


def _glimpse(own: list[str], name: str) -> Glimpse:
    try:
        received = int(_shared(own[-1]).received)
        return record.area_of(own[2]).value, name, received, int(own[4]), own[10]
    except (ValueError, KeyError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {own!r:.120}") from error


@lru_cache(maxsize=1024)
def _shared(part: str) -> record.Fields:
    return record.shared_fields(part)


_NAMES: Mapping[str, Callable[[list[str]], str]] = {
    "destination": lambda own: _route(own) or domain_of(own[11]),
    "domain": lambda own: domain_of(own[11]),
    "reply": lambda own: f"{own[7]} {own[8]}".rstrip() if own[7] != "0" else _NO_REPLY,
    "age": lambda _own: "",
}
"""Of the row that a recipient belongs to."""


def shape_lines(shape: Shape) -> Iterator[str]:
    """One JSON object a row."""
    inner = "areas" if shape.by == "age" else "ages"
    for name, row in shape.ordered():
        fields: dict[str, object] = {"by": shape.by, shape.by: name}
        if shape.by == "reply":
            fields["example"] = row.example or None
        yield json_line(
            {
                **fields,
                "recipients": row.total,
                "bytes": row.octets,
                "oldest": format_time(row.oldest) if row.oldest else None,
                inner: dict(zip(shape.columns, row.counts, strict=True)),
            }
        )


def show_shape(shape: Shape, now: int, console: Console | None = None) -> None:
    """Print it as a table with totals: on a terminal the largest rows, in a pipe all of them."""
    console = console or Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE)
    people = console.is_terminal
    rows = shape.ordered()
    shown = list(islice(rows, _MOST) if people else rows)
    rest = Row([0] * len(shape.columns))
    for _, row in rows:
        rest.add(row)
    if rest.total:
        shown.append((_REST, rest))
    whole = Row([0] * len(shape.columns))
    for _, row in shown:
        whole.add(row)
    table = Table(box=SIMPLE_HEAD, padding=(0, 0), show_edge=False, show_footer=True)
    table.add_column(shape.by, "all", overflow="fold", min_width=8)
    table.add_column("total", str(whole.total), justify="right", no_wrap=True)
    for name, count in zip(shape.columns, whole.counts, strict=True):
        table.add_column(name, str(count), justify="right", no_wrap=True)
    table.add_column("octets", size(whole.octets), justify="right", no_wrap=True)
    table.add_column("oldest", ago(whole.oldest, now) if whole.oldest else "-", justify="right", no_wrap=True)
    for name, row in shown:
        label = f"{name} {row.example[:40]}".rstrip() if shape.by == "reply" else name
        counts = [str(count) if count else "." for count in row.counts]
        oldest = ago(row.oldest, now) if row.oldest else "-"
        table.add_row(Text(printable(label)), str(row.total), *counts, size(row.octets), oldest)
    console.print(table)
