"""`run`, `check` and `demo`: the commands that deal with a server."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from mqcd.cli.options import Place, at_place, takes_place


@click.command(short_help="Run the server.")
@at_place
def run(place: Place) -> int:
    """Run the server. SIGTERM stops it, SIGHUP reloads its configuration."""
    # What is imported is no garbage: to look for some meanwhile would be a tenth of the start.
    gc.disable()
    try:
        from mqcd.daemon.start import run as run_server
    finally:
        gc.enable()

    return run_server(place.load, place.conf)


@click.command(short_help="Check the configuration and print the settings in effect.")
@at_place
def check(place: Place) -> int:
    """Print the settings in effect, or every error in the configuration."""
    from mqcd.config.problems import BadConfiguration
    from mqcd.config.show import as_xml
    from mqcd.daemon.hashkey import hash_key
    from mqcd.daemon.host.machine import misfits
    from mqcd.daemon.host.privileges import find_user
    from mqcd.daemon.listeners.checks import check_files
    from mqcd.daemon.listeners.listenertls import ListenersTls
    from mqcd.daemon.page.terms import check_page
    from mqcd.daemon.storing import STORE, check_store

    loaded = place.load()
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    if (user := loaded.settings.application.user) is not None:
        find_user(user)
    hash_key(loaded.settings.ops.events, place.conf)
    check_files(loaded.settings, place.conf)
    ListenersTls(loaded.settings.submit).load(loaded.settings.submit, place.conf)
    if loaded.settings.ops.page.enabled:
        check_page(loaded.settings, place.conf)
    for text in check_store(loaded.settings, place.conf):
        click.echo(f"warning: {loaded.remark(STORE, text)}", err=True)
    if wrong := tuple(loaded.remark(*each) for each in misfits(loaded.settings)):
        raise BadConfiguration(wrong)
    click.echo(as_xml(loaded.settings), nl=False)
    return 0


@click.command(short_help="Show server and receiver at work.")
@click.option(
    "--keep", metavar="DIR", type=click.Path(path_type=Path), help="Keep queue, log and events here."
)
@click.option("--pipeline", is_flag=True, help="End with the pipeline's report; needs its extra and Java.")
@takes_place()
def demo(keep: Path | None, pipeline: bool) -> int:
    """Run server and receiver on free loopback ports and show what happens to real messages."""
    from mqcd.demo import run as run_demo

    return run_demo(keep, pipeline=pipeline)
