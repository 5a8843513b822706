"""`page`: the page for people and the HTTP API of a running server, by hand."""

from __future__ import annotations

import click

from mqcd.cli.options import Place, at_place


@click.command(short_help="Serve the page and the HTTP API of a running server.")
@at_place
def page(place: Place) -> int:
    """Serve the page and the HTTP API of a running server, until SIGTERM or SIGINT.

    Where the configuration enables ops/page, the server runs it itself.
    """
    from mqcd.daemon.page.process import run_by_hand

    return run_by_hand(place.load(), place.conf)
