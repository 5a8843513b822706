"""`mqcd top` as lines of a terminal: a pure function of what is known and of the window.

Made for 80 columns and 24 lines. A wider window shows more of each reply, a higher one more destinations;
a smaller one loses the ends of lines, and then destinations. No line is ever wider than the window, and
nothing that a stranger chose (addresses, replies) can drive the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mqcd.core.display import printable, size, span
from mqcd.core.events import FAILURES, NOT_DELIVERED, PUT_OFF, format_time
from mqcd.core.samples import MOST_DESTINATIONS, View

_BARS = " ▁▂▃▄▅▆▇█"
_AREA_STYLES = {"incoming": "cyan", "deferred": "yellow", "bounces": "red", "held": "magenta"}
_NAME, _WIDEST_NAME = 18, 40
_STATE = 10
_MOST_STUCK = 4

Part = tuple[str, str | Style]
"""A text and its style."""


def screen(
    view: View, where: str, width: int, height: int, *, trouble: str = "", once: bool = False
) -> list[Text]:
    """The lines, at most `height`; just so many unless `once`, which is for a page that scrolls.

    `where` names the server; `trouble`: why its figures are out of date.
    """
    parts: list[list[Part]] = [_status(view, trouble)]
    if view.known:
        parts += [*_figures(view, width), [], *_rows(_areas(view), width), []]
        stuck = list(_stuck(view))
        for each in _destinations(view, width, max(height - len(parts) - len(stuck) - 2, 0)):
            parts += _rows(each, width) if isinstance(each, Table) else [each]
        parts += stuck
    lines = [_head(view, where, width, trouble), *(_line(each, width) for each in parts)]
    if len(lines) < height and not once:
        lines += [Text()] * (height - len(lines) - 1) + [_line([("q", "bold"), (" quits", "dim")], width)]
    return lines[:height]


def _line(parts: Sequence[Part], width: int) -> Text:
    line = Text.assemble(" ", *parts) if parts else Text()
    line.truncate(width, overflow="ellipsis")
    return line


def _spread(left: Text, right: Text, width: int) -> Text:
    """Both ends of one line; the right one goes first where there is no room for both."""
    gap = width - left.cell_len - right.cell_len - 1
    if gap < 2:
        left.truncate(width, overflow="ellipsis")
        return left
    return Text.assemble(left, " " * gap, right)


def _head(view: View, where: str, width: int, trouble: str) -> Text:
    state = ("not ready", "bold red") if view.against else ("ready", "green")
    if trouble:
        state = ("no answer", "bold red")
    left = Text.assemble((" mqcd", "bold"), f" {view.version}  ", (where, "dim"), "  ", state)
    clock = format_time(view.at)
    right = f"up {span(int(view.uptime * 1000))}  {clock[:10]} {clock[11:19]} UTC"
    return _spread(left, Text(right), width)


def _status(view: View, trouble: str) -> list[Part]:
    if trouble:
        return [(f"{printable(trouble)}; the figures below are older", "bold red")]
    return [(printable(view.against.splitlines()[0]), "red")] if view.against else []


# ---------------------------------------------------------------- figures


def _figures(view: View, width: int) -> Iterator[list[Part]]:
    rates = view.rates
    octets = rates["accepted_bytes"]
    put_off = _sum(*(rates[verb] for verb in PUT_OFF))
    failed = _sum(*(rates[verb] for verb in NOT_DELIVERED if verb in FAILURES))
    yield _flow("in", rates["accepted"], view.trends["accepted"], _per_second(octets), "cyan", width)
    yield _flow("out", rates["delivered"], view.trends["delivered"], "", "green", width)
    yield [
        *_named("put off", f"{_rate(put_off)}/s", _if(put_off, "yellow")),
        *_named("failed", f"{_rate(failed)}/s", _if(failed, "red")),
        *_named("refused", f"{_rate(rates['refused'])}/s", ""),
        *_named("clients", f"{view.clients:,.0f}", ""),
        *_named("connections", f"{view.connections:,.0f}", ""),
    ]
    yield [
        *_named("commit", "-" if view.commit_ms is None else f"{view.commit_ms:.1f} ms", ""),
        *_named("group", "-" if view.group is None else f"{view.group:.1f}", ""),
        *_named("journal", f"{view.journal:.0%}", _alarm(view.journal, 0.5, 0.75)),
        *_named("lag", f"{view.lag * 1000:,.0f} ms", _alarm(view.lag, 0.2, 1.0)),
        *_named("cpu", "-" if view.cpu is None else f"{view.cpu:.0%}", ""),
        *_named("mem", size(int(view.memory)), ""),
    ]
    free = [part for root, octets in view.disks.items() for part in _named(root, size(int(octets)), "")]
    yield [("free  ", "dim"), *free, *_books(view)]


def _books(view: View) -> Iterator[Part]:
    """Figures shown only when not zero."""
    if view.unknown:
        yield from _named("outcome unknown", f"{view.unknown:,.0f}", "yellow")
    if view.imbalance:
        yield from _named("ledger imbalance", f"{view.imbalance:,.0f}", "bold red")


def _flow(
    name: str, rate: float | None, trend: Sequence[float], more: str, style: str, width: int
) -> list[Part]:
    room = max(width - 27, 0)
    bars = sparkline(trend[-room:] if room else []).rjust(room)
    return [
        (f"{name:<4}", "dim"),
        (f"{_rate(rate):>7}/s ", "bold"),
        (f"{more:>8}  ", "dim"),
        (bars, style),
    ]


def sparkline(values: Sequence[float]) -> str:
    """One bar for each value, the highest for the greatest."""
    most = max(values, default=0.0)
    if not most:
        return _BARS[0] * len(values)
    return "".join(_BARS[ceil(value / most * 8)] for value in values)


def _named(name: str, value: str, style: str) -> list[Part]:
    return [(f"{name} ", "dim"), (value, style), ("  ", "")]


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _per_second(octets: float | None) -> str:
    return "" if octets is None else f"{size(int(octets))}/s"


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _if(value: float | None, style: str) -> str:
    return style if value else ""


def _alarm(value: float, high: float, too_high: float) -> str:
    if value >= too_high:
        return "bold red"
    return "yellow" if value >= high else ""


# ---------------------------------------------------------------- areas, destinations, what is stuck


def _areas(view: View) -> Table:
    table = _table()
    table.add_column("area", width=12)
    for name in ("recipients", "octets", "oldest"):
        table.add_column(name, width=12, justify="right")
    for area, (recipients, octets, oldest) in view.areas.items():
        cells = (f"{recipients:,.0f}", size(int(octets)), span(int(oldest * 1000)) if recipients else "-")
        style = "" if recipients else "dim"
        table.add_row(Text(area, _AREA_STYLES.get(area, "")), *(Text(cell, style) for cell in cells))
    return table


def _destinations(view: View, width: int, room: int) -> Iterator[list[Part] | Table]:
    """A heading and a row for each; where there are more than there is room for, how many."""
    if room < 2:
        return
    everything = view.destinations
    shown = everything if len(everything) < room else everything[: room - 2]
    table = _table(width - 1)
    table.add_column("destination", width=min(_NAME + max(width - 80, 0) // 3, _WIDEST_NAME))
    for name, columns in (("oldest", 8), ("active", 8), ("conn", 5)):
        table.add_column(name, width=columns, justify="right")
    table.add_column("  state", width=_STATE + 2)
    table.add_column(" last reply", ratio=1)
    for row in shown:
        table.add_row(*_destination(row))
    yield table
    if not everything:
        yield [(printable(view.hidden) or "nothing waits", "dim")]
    if more := len(everything) - len(shown):
        known = len(everything) < MOST_DESTINATIONS
        yield [(f"and {more} more" if known else f"and {more} or more others", "dim")]


def _destination(row: Mapping[str, Any]) -> Iterator[Text]:
    state, style = _state(row)
    yield Text(printable(row["destination"]), "bold")
    yield Text("-" if row["oldest_ms"] is None else span(row["oldest_ms"]))
    yield Text(f"{row['waiting']:,}")
    yield Text(str(row["connections"]))
    yield Text(f"  {state}", style)
    yield Text(f" {printable(row['reply'] or '-')}", "" if row["reply"] else "dim")


def _table(width: int | None = None) -> Table:
    return Table(box=None, padding=0, pad_edge=False, header_style="dim", width=width)


def _rows(table: Table, width: int) -> Iterator[list[Part]]:
    """A table's lines."""
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    console = Console(width=max(width, 1), color_system="truecolor", force_terminal=True)
    for line in console.render_lines(table, console.options.update(no_wrap=True), pad=False):
        yield [(segment.text, segment.style or "") for segment in line]


def _state(row: Mapping[str, Any]) -> Part:
    if row["suspended"]:
        return f"dead {span(row['probe_in_ms'])}" if row["probe_in_ms"] else "probed", "red"
    if row["rate_in_ms"] and row["waiting"]:
        return f"rate {span(row['rate_in_ms'])}", "yellow"
    if row["connections"] > row["idle"]:
        return "trying", "green"
    return ("in line", "") if row["waiting"] else ("put off", "yellow")


def _stuck(view: View) -> Iterator[list[Part]]:
    if not view.stuck:
        return
    count = view.stuck_recipients
    yield [("stuck", "bold red"), (f": {count:,.0f} recipient{'' if count == 1 else 's'}", "red")]
    for row in view.stuck[:_MOST_STUCK]:
        text = f"{row['kind']} {row['name']} for {span(row['since_ms'])}: {row['why']}"
        yield [(printable(text), "")]
