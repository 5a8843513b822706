"""What `mqcd pipeline ledger` tells people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mqcd.core.display import printable
from mqcd.core.events import format_time

if TYPE_CHECKING:
    from mqcd.pipeline.account.account import Account

_SHOWN = 20
"""Recipients of a kind that are named."""
_UNREAD = "of mail that was lost with them no event tells; `mqcd fsck` says where they lie"


def show(sums: Account) -> None:
    """Say where all recipients are, and name those of whom nothing is known."""
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
        click.echo(f"{sums.possible_duplicates} delivered after a connection that broke behind the final dot")
    if sums.doubled or sums.damaged:
        click.echo(f"{sums.doubled} events with an id twice, {sums.damaged} lines that cannot be read")
    if sums.unread:
        click.echo(f"up to {sums.unread} records name nobody, and stand for nobody who is missing: {_UNREAD}")
    if sums.others:
        click.echo(f"left out, for their queues are not here: {', '.join(map(printable, sums.others))}")
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
        when = f"due {format_time(each.due)}, {each.attempts} attempts"
        click.echo(printable(f"stuck: {each.id} to {each.recipient}, {when}{said}"))
    if sums.stuck > _SHOWN:
        click.echo(f"stuck: {sums.stuck} in all; --json names {len(sums.overdue)}")
