"""`import mailismus`, `import eml`: mail from elsewhere into the queue, with the server stopped."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mqcd.cli.options import Command, Place, as_json, at_place, json_line, takes_place
from mqcd.cli.progress import waiting
from mqcd.cli.upkeep import (
    cluster_at,
    drop_to_owner,
    interruptible,
    need_access,
    problem_fields,
    problem_line,
    until_decided,
)
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from mqcd.queue.admin.transfer.job import Outcome
    from mqcd.queue.admin.transfer.letters import Tree

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


def _dry_run(command: Command) -> Command:
    return click.option("--dry-run", is_flag=True, help="Only read and check; change nothing.")(command)


@click.group("import", short_help="Import mail into the queue.")
@takes_place()
def bring_in() -> None:
    """Import mail into the queue; no server may run."""


@bring_in.command(short_help="Import a queue of Mailismus.")
@_directory
@click.option("--spool", metavar="DIR", type=click.Path(path_type=Path), help="Its spool.  [DIR/spool]")
@_dry_run
@as_json
@at_place
def mailismus(place: Place, directory: Path, spool: Path | None, dry_run: bool, as_json: bool) -> int:
    """Import a queue of Mailismus; DIR is its %DIRVAR%, which is not changed."""

    from mqcd.queue.admin.transfer.mailismus import places, read_tree

    roots = places(directory, spool)
    read = partial(read_tree, spool=spool)
    return _bring(place, "mailismus", directory, read, dry_run, as_json, roots)


@bring_in.command(short_help="Import the .eml files of a directory.")
@_directory
@_dry_run
@as_json
@at_place
def eml(place: Place, directory: Path, dry_run: bool, as_json: bool) -> int:
    """Import the .eml files below DIR by its index.jsonl, else by their headers."""
    from mqcd.queue.admin.transfer.eml import read_directory

    return _bring(place, "eml", directory, read_directory, dry_run, as_json)


def _bring(
    place: Place,
    kind: str,
    directory: Path,
    read: Callable[..., Tree],
    dry_run: bool,
    as_json: bool,
    roots: Sequence[Path] = (),
) -> int:
    """`read` reads the mail of `directory`; `roots`: directories that it reads besides."""
    from mqcd.disk.durable import Disk
    from mqcd.ops.fanout import Fanout
    from mqcd.queue.admin.transfer.job import Import

    options = cluster_at(place, f"import {kind}")
    settings = options.settings
    name = None if dry_run else place.load().settings.application.user
    owner = drop_to_owner(
        settings.rootpath, name, [settings.rootpath, settings.spool.rootpath, options.events]
    )
    for each in (directory, *roots):
        need_access(each, owner, os.R_OK)
    clock, disk = SystemClock(), Disk()

    def read_all(known: Set[str]) -> Tree:
        now = clock.now()
        latest = now + options.schedule.longest
        return read(disk, directory, now=now, latest=latest, known=known, progress=progress)

    with until_decided() as decide:
        with waiting(clock) as progress:
            work = Import(
                options=options,
                clock=clock,
                observer=Fanout(),
                kind=kind,
                read=read_all,
                roots=roots,
                progress=progress,
                decide=decide,
            )
            outcome = work.rehearse() if dry_run else interruptible(work.run())
        if as_json:
            click.echo(json_line(_as_fields(outcome, dry_run)), nl=False)
        else:
            _show(outcome, dry_run)
    return 0


def _as_fields(outcome: Outcome, dry_run: bool) -> dict[str, object]:
    tree = outcome.tree
    return {
        "found": tree.found,
        "imported": outcome.imported,
        "skipped": tree.skipped,
        "damaged": tree.damaged,
        "dry_run": dry_run,
        "problems": problem_fields(tree.problems),
    }


def _show(outcome: Outcome, dry_run: bool) -> None:
    tree = outcome.tree
    for problem in tree.problems:
        click.echo(problem_line(problem), err=True)
    would = "to be imported" if dry_run else "imported"
    click.echo(
        f"{tree.found} found, {outcome.imported} {would}, {tree.skipped} skipped, {tree.damaged} damaged"
    )
    if tree.damaged:
        click.echo("what is damaged was left out; mend it at its place and import again: only that is added")
