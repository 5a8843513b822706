"""`trace`: what client and server say in the sessions that concern one address or peer, as it is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import click

from mqcd.cli.asking import control_at
from mqcd.cli.options import DURATION, Place, as_json, at_place

_MORE = ("name", "host", "tls", "octets", "reason")
_MARK = {"client": ">", "server": "<"}


@click.command(short_help="Show what is said in sessions with one address or peer.")
@click.argument("sought")
@click.option(
    "--for", "lasts", metavar="TIME", type=DURATION, default="10m", show_default=True, help="How long."
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=10_000, show_default=True, help="Lines."
)
@as_json
@at_place
def trace(place: Place, /, sought: str, lasts: int, limit: int, as_json: bool) -> None:
    """Show SMTP sessions that begin from now on: commands and replies, never contents or passwords.

    SOUGHT: a mail address, a domain, a user, a host, a destination, or an IP address or network. Ctrl-C ends.
    """
    query = urlencode({"q": sought, "for": f"{lasts}ms", "limit": limit})
    with control_at(place).follow(f"/v1/trace?{query}") as lines:
        if not as_json:
            click.echo("tracing; sessions that begin from now on are shown", err=True)
        for line in filter(None, map(bytes.strip, lines)):
            click.echo(line.decode() if as_json else _shown(json.loads(line)))


def _shown(row: Mapping[str, Any]) -> str:
    """A row for people."""
    event = row["event"]
    if event == "dropped":
        return f"({row['count']} lines came too fast and are missing)"
    if event == "ended":
        return f"(the trace is over: {row['reason']})"
    head = f"{row['at'][11:23]} {row['session']} {row['peer']}"
    if event == "said":
        return f"{head} {_MARK[row['who']]} {row['text']}"
    rest = " ".join(f"{name}={row[name]}" for name in _MORE if row.get(name))
    return f"{head} ({event} {rest})"
