"""Opens the queue for commands that read it: its files, or another store by its server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mqcd.cli.options import Place
from mqcd.cli.upkeep import drop_to_owner, drop_to_server

if TYPE_CHECKING:
    from mqcd.config.settings import Settings
    from mqcd.daemon.control.view import View
    from mqcd.queue.reading.shards import Snapshots


@contextmanager
def open_queue(place: Place) -> Iterator[Snapshots | View]:
    """What a command reads; what it had to leave out is reported at the end."""
    from mqcd.disk.durable import Disk
    from mqcd.queue.reading.shards import Snapshots

    settings = place.load().settings
    place.give_way()
    snapshot: Snapshots | View
    if is_cluster(settings):
        drop_to_owner(settings.queue.rootpath)
        snapshot = Snapshots(Disk(), settings.queue.rootpath, settings.queue.spool.rootpath)
    else:
        snapshot = view_at(settings, place)
    try:
        if snapshot.damage:
            text = "stretches of the journal are damaged and left out; `mqcd fsck` lists them"
            click.echo(f"{snapshot.damage} {text}", err=True)
        yield snapshot
        report_damaged(snapshot.unreadable.records)
    finally:
        snapshot.close()


def is_cluster(settings: Settings) -> bool:
    """Whether the queue is the clustered-file one, whose files commands read themselves."""
    from mqcd.config.settings import CLUSTER

    return settings.queue.store.kind == CLUSTER


def view_at(settings: Settings, place: Place) -> View:
    """The queue in another store. Root becomes the user that the server becomes. Raises ConfigError."""
    from mqcd.daemon.control.view import view_of

    drop_to_server(settings)
    return view_of(settings, place.conf)


def report_damaged(count: int) -> None:
    """Print how many records were left out, if any were."""
    if count:
        click.echo(f"{count} records are damaged or missing, and left out; `mqcd fsck` lists them", err=True)
