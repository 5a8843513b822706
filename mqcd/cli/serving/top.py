"""`top`: what a running server does, live."""

from __future__ import annotations

import click

from mqcd.cli.options import Place, as_json, at_place, json_line
from mqcd.net.clock import SystemClock


@click.command(short_help="Watch a running server.")
@click.option("--url", metavar="URL", help="Ops listener of the server; default: the configuration's.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Time between samples.",
)
@click.option("--once", is_flag=True, help="Print one picture, then end.")
@as_json
@at_place
def top(place: Place, url: str | None, interval: float, once: bool, as_json: bool) -> int:
    """Watch a running server: rates, areas, the worst destinations, the engine. q quits.

    --json prints one object. Without a terminal, --once is the default.
    """
    import sys

    from rich.console import Console

    from mqcd.top.client import Server, look, watch
    from mqcd.top.client import as_json as as_fields
    from mqcd.top.screen import screen

    if url is not None:
        server = Server.at(url)
    else:
        ops = place.load().settings.ops
        server = Server.of(ops.interface, ops.port, ops.control.path)
    clock, console = SystemClock(), Console(highlight=False)
    if as_json:
        click.echo(json_line(as_fields(look(server, clock, interval))), nl=False)
    elif once or not (console.is_terminal and sys.stdin.isatty()):
        shown = look(server, clock, interval)
        for line in screen(shown, str(server), console.width, console.height, once=True):
            console.print(line)
    else:
        watch(server, clock, interval, console)
    return 0
