"""The text output of `mqcd pipeline ledger`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqcd.core.display import printable
from mqcd.core.events import format_time

if TYPE_CHECKING:
    from mqcd.pipeline.account.account import Account

_SHOWN = 20
"""Recipients of one kind that are listed."""
_UNREAD = "mail lost with them has no events; `mqcd fsck` lists them"


def show(sums: Account) -> None:
    """Print where all recipients are, and name the missing ones."""
    ends = (
        "delivered", "bounced", "expired", "removed", "queued", "quarantined",
    )  # fmt: skip
    rows = [("accepted", sums.accepted), *((name, getattr(sums, name)) for name in ends)]
    width = max(len(str(number)) for _, number in rows)
    for name, number in rows:
        click.echo(f"{name:12} {number:{width}}")
    click.echo(f"{'imbalance':12} {sums.imbalance:{width}}")
    click.echo(f"{sums.unknown} outcomes unknown, {sums.duplicates} delivered after one")
    if sums.possible_duplicates:
        click.echo(f"{sums.possible_duplicates} delivered after a connection that broke after the final dot")
    if sums.doubled or sums.damaged:
        click.echo(f"{sums.doubled} events with a repeated id, {sums.damaged} unreadable lines")
    if sums.unread:
        click.echo(f"up to {sums.unread} unreadable records without a known recipient: {_UNREAD}")
    if sums.others:
        click.echo(f"left out, because their queues are not here: {', '.join(map(printable, sums.others))}")
    twice = [*sums.duplicated, *sums.possibly_duplicated]
    lists = {"missing": sums.missing, "in excess": sums.excess, "maybe twice": twice}
    for what, ids in lists.items():
        for each in ids[:_SHOWN]:
            click.echo(f"{what}: {each}")
        if len(ids) > _SHOWN:
            click.echo(f"{what}: and others; --json names {len(ids)}")
    _show_stuck(sums)


def _show_stuck(sums: Account) -> None:
    for each in sums.overdue[:_SHOWN]:
        said = f": {each.status or ''} {each.reply}" if each.reply else ""
        when = f"due {format_time(each.due or 0)}, {each.attempts} attempts"
        click.echo(printable(f"stuck: {each.id} to {each.recipient}, {when}{said}"))
    if sums.stuck > _SHOWN:
        click.echo(f"stuck: {sums.stuck} in all; --json names {len(sums.overdue)}")
