"""The queue as tables for people, readable at 80 columns.

Recipients may be many, so their table is written line by line as it is read: columns of fixed width, and
the rest of the line for what varies, folded there. A table that measures its rows first would take a
minute for what this writes in a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mqcd.core.display import ago, ahead, printable, size
from mqcd.core.model import Area, AreaStats
from mqcd.core.queueing.spid import format_spid
from mqcd.queue.reading.snapshot import Item

STYLES = {
    Area.INCOMING: "cyan",
    Area.DEFERRED: "yellow",
    Area.BOUNCES: "red",
    Area.HELD: "magenta",
    Area.REMOVED: "dim",
}
_CODES = {"": "", "bold": "1", "dim": "2", "red": "31", "yellow": "33", "magenta": "35", "cyan": "36"}
_MESSAGE, _AREA, _TRIES = 20, 9, 5
_LEFT = _MESSAGE + _AREA + _TRIES + 7
"""Columns before the recipient: three, two blanks after each, one before the first."""

Cell = tuple[str, str]
"""A text and its style."""
_NOTHING: Cell = ("", "")


def show_recipients(batches: Iterable[Sequence[Item]], now: int) -> int:
    """Print recipients as they come; gives how many there were."""
    console = Console(highlight=False)
    paint = bool(console.color_system) and not console.no_color
    width = max(console.width - _LEFT - 1, 20)
    count = 0
    for batch in batches:
        if not count:
            console.file.write(_head(console.width))
        count += len(batch)
        console.file.write("".join([line for item in batch for line in _lines(item, now, width, paint)]))
    if count:
        console.print(f" {count} recipient{'' if count == 1 else 's'}", style="dim")
    return count


def _head(width: int) -> str:
    names = f" {'message':<{_MESSAGE}}  {'area':<{_AREA}}  {'tries':>{_TRIES}}  recipient\n"
    return f"{names}{'─' * width}\n"


def _lines(item: Item, now: int, width: int, paint: bool) -> Iterator[str]:
    recipient = item.recipient
    envelope = recipient.envelope
    message: list[Cell] = [
        (f"{format_spid(envelope.spid)}/{recipient.qid}", ""),
        (f"{ago(envelope.received, now)}, {size(recipient.size)}", "dim"),
    ]
    area: list[Cell] = [(recipient.area.value, STYLES[recipient.area]), _when(item, now)]
    right = [
        *_fold(recipient.address, "bold", width),
        *_fold(f"from {envelope.sender or '<>'}", "dim", width),
    ]
    if recipient.code:
        right += _fold(f"{recipient.code} {recipient.status} {recipient.reply}", "", width)
    tries = str(recipient.attempts)
    for left, middle, last in zip_longest(message, area, right, fillvalue=_NOTHING):
        yield (
            f" {_cell(left, _MESSAGE, paint)}  {_cell(middle, _AREA, paint)}  {tries:>{_TRIES}}"
            f"  {_cell(last, 0, paint)}".rstrip()
        ) + "\n"
        tries = ""


def _when(item: Item, now: int) -> Cell:
    if item.in_flight:
        return "under way", "bold"
    return (ahead(item.recipient.due, now), "") if item.recipient.due else _NOTHING


def _fold(text: str, style: str, width: int) -> list[Cell]:
    text = printable(text)
    parts = chop_cells(text, width) if cell_len(text) > width else [text]
    return [(part, style) for part in parts]


def _cell(cell: Cell, width: int, paint: bool) -> str:
    text, style = cell
    padded = text.ljust(width)
    return f"\x1b[{_CODES[style]}m{padded}\x1b[0m" if paint and text and style else padded


def show_stats(stats: Mapping[Area, AreaStats], now: int) -> None:
    """Print what each area holds, and the sum."""
    held = stats.values()
    table = Table(box=SIMPLE_HEAD, padding=(0, 2), show_edge=False, show_footer=True)
    table.add_column("area", "all")
    table.add_column("recipients", str(sum(each.recipients for each in held)), justify="right")
    table.add_column("octets", size(sum(each.octets for each in held)), justify="right")
    table.add_column("oldest", justify="right")
    for area, each in stats.items():
        oldest = ago(each.oldest, now) if each.oldest is not None else "-"
        table.add_row(Text(area.value, style=STYLES[area]), str(each.recipients), size(each.octets), oldest)
    Console(highlight=False).print(table)
