"""Asks the running server, and shows what an answer says of many recipients."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.options import Place, show

if TYPE_CHECKING:
    from mqcd.net.control.client import Control


def control_at(place: Place) -> Control:
    """The server's control socket."""
    from mqcd.net.control.client import Control

    return Control(place.load().settings.ops.control.path)


def ask(control: Control, path: str, fields: Mapping[str, object] | None = None) -> Any:
    """The value that the server answers, as `Control.ask`."""
    return json.loads(control.ask(path, fields))


def show_done(done: Mapping[str, Any], text: str, as_json: bool) -> int:
    """Print what a batch or a rule does to mail, or would do; `text` is for people.

    Gives the exit code: 1 where not all shards took part.
    """
    left_out = done.get("left_out", ())
    for each in left_out:
        click.echo(each, err=True)
    report_unrouted(done.get("unrouted", 0))
    if not as_json:
        for row in done.get("sample", ()):
            click.echo(f"{row['spid']}/{row['qid']}  {row['area']}  <{row['sender']}> -> {row['recipient']}")
    show(done, text, as_json)
    return 1 if left_out else 0


def report_unrouted(domains: int) -> None:
    """Say how many domains have no site, if any."""
    if domains:
        click.echo(f"{domains} domains have no route now: their mail is of no site", err=True)
