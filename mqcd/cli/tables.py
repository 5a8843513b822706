"""The queue as tables for people, readable at 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mqcd.cli.words import ago, ahead, printable, size
from mqcd.core.model import Area, AreaStats
from mqcd.core.spid import format_spid
from mqcd.queue.snapshot import Item

STYLES = {Area.INCOMING: "cyan", Area.DEFERRED: "yellow", Area.BOUNCES: "red", Area.HELD: "magenta"}


def show_recipients(batches: Iterable[list[Item]], now: int, console: Console | None = None) -> int:
    """Print recipients, a table for each batch with the head on the first; gives how many there were."""
    console = console or Console(highlight=False)
    count = 0
    for batch in batches:
        console.print(recipients_table(batch, now, head=not count))
        count += len(batch)
    console.print(f" {count} recipient{'' if count == 1 else 's'}" if count else "nothing waits", style="dim")
    return count


def recipients_table(items: Iterable[Item], now: int, *, head: bool = True) -> Table:
    """Three columns of fixed width and one for the rest, so that the tables of all batches align."""
    table = Table(box=SIMPLE_HEAD, show_header=head, padding=(0, 1), show_edge=False, expand=True)
    table.add_column("message", width=19, no_wrap=True)
    table.add_column("area", width=9)
    table.add_column("tries", width=5, justify="right")
    table.add_column("recipient", ratio=1, overflow="fold")
    for item in items:
        table.add_row(*_cells(item, now))
    return table


def _cells(item: Item, now: int) -> tuple[Text, Text, Text, Text]:
    recipient = item.recipient
    envelope = recipient.envelope
    message = Text(f"{format_spid(envelope.spid)}/{recipient.qid}")
    message.append(f"\n{ago(envelope.received, now)}, {size(recipient.size)}", style="dim")
    area = Text(recipient.area.value, style=STYLES[recipient.area])
    if item.in_flight:
        area.append("\nunder way", style="bold")
    elif recipient.due:
        area.append(f"\n{ahead(recipient.due, now)}", style="default")
    address = Text(printable(recipient.address), style="bold")
    address.append(f"\nfrom {printable(envelope.sender) or '<>'}", style="not bold dim")
    if recipient.code:
        words = f"{recipient.code} {recipient.status} {recipient.reply}"
        address.append(f"\n{printable(words)}", style="not bold")
    return message, area, Text(str(recipient.attempts)), address


def show_stats(stats: Mapping[Area, AreaStats], now: int, console: Console | None = None) -> None:
    """Print what each area holds, and the sum."""
    (console or Console(highlight=False)).print(stats_table(stats, now))


def stats_table(stats: Mapping[Area, AreaStats], now: int) -> Table:
    """A line for each area, and the sum."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 2), show_edge=False, show_footer=True)
    held = stats.values()
    table.add_column("area", "all")
    table.add_column("recipients", str(sum(each.recipients for each in held)), justify="right")
    table.add_column("octets", size(sum(each.octets for each in held)), justify="right")
    table.add_column("oldest", justify="right")
    for area, each in stats.items():
        oldest = ago(each.oldest, now) if each.oldest is not None else "-"
        name = Text(area.value, style=STYLES[area])
        table.add_row(name, str(each.recipients), size(each.octets), oldest)
    return table
