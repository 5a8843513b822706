"""`queue ls`, `stat`, `cat`, `export`: the queue by its files, with or without a running server."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.options import DURATION, Command, Place, as_json, at_place, counted, show, takes_place
from mqcd.cli.progress import waiting
from mqcd.cli.queue.opening import is_cluster, open_queue, report_damaged, view_at
from mqcd.cli.upkeep import drop_to_owner, interruptible, need_access
from mqcd.core.errors import DecodeError
from mqcd.core.queueing.spid import format_spid
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from mqcd.cli.queue.oldest import Oldest
    from mqcd.core.selecting.live import Origins
    from mqcd.core.selecting.selection import Selection
    from mqcd.core.selecting.where import Where
    from mqcd.daemon.control.view import View
    from mqcd.queue.admin.transfer.guess import Guess
    from mqcd.queue.reading.shards import Snapshots

AREAS = ("incoming", "deferred", "bounces", "held", "removed")


def _spid(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """A SPID, 16 hex digits, as its number."""
    from mqcd.core.queueing.spid import parse_spid

    try:
        return parse_spid(text) if text is not None else None
    except DecodeError as error:
        raise click.BadParameter(str(error)) from error


def _directory(_context: click.Context, _parameter: click.Parameter, text: str) -> Path:
    if not text:
        raise click.BadParameter("name a directory; . is the current one")
    return Path(text)


def selects(command: Command) -> Command:
    """The flags that choose recipients."""
    flags = (
        click.option("--area", type=click.Choice(AREAS), help="Only this area."),
        click.option("--spid", callback=_spid, metavar="SPID", help="Only this message."),
        click.option("--sender", metavar="PATTERN", help="Only from this sender; '' is the null sender."),
        click.option("--recipient", metavar="PATTERN", default="", help="Only to this recipient."),
        click.option("--domain", metavar="PATTERN", default="", help="Only to recipients of this domain."),
        click.option("--older", metavar="DURATION", type=DURATION,
                     help="Only mail accepted longer ago, such as 1h30m."),
        click.option("--where", metavar="EXPR", help="Only what this says: 'age > 2h and not area = held'."),
        click.option("--limit", metavar="N", type=click.IntRange(min=0), help="Largest number."),
    )  # fmt: skip
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.group()
@takes_place()
def queue() -> None:
    """List, count, copy or retry queued mail."""


@queue.command("ls", short_help="List waiting recipients.")
@selects
@click.option("--sort", "order", type=click.Choice(("age",)), help="Oldest first.")
@as_json
@at_place
def ls(place: Place, /, order: str | None, as_json: bool, **chosen: Any) -> int:
    """List waiting recipients: as a table on a terminal, in a pipe one line each, with tabs between columns.

    Addresses and domains may be shell patterns: --sender '*@here.example'.
    """
    now = SystemClock().now()
    selection = selected_records(place, now, chosen)
    count = 0
    with open_queue(place) as queued:
        snapshot: Snapshots | View | Oldest = queued
        if order:
            from mqcd.cli.queue.oldest import Oldest

            snapshot = Oldest(queued)
        if as_json or not _for_people():
            from mqcd.cli.queue.records import recipient_columns, recipient_line

            for lines in snapshot.project(selection, recipient_line if as_json else recipient_columns):
                count += len(lines)
                sys.stdout.write("".join(lines))
        else:
            from mqcd.cli.queue.tables import show_recipients

            count = show_recipients(snapshot.batches(selection), now)
    if not count:
        click.echo("nothing waits" if selection.everything else "nothing matches", err=True)
    return 1 if queued.left_out else 0


@queue.command("stat", short_help="Count waiting mail by area, destination, domain, reply or age.")
@click.option("--by", type=click.Choice(("area", "destination", "domain", "reply", "age")), default="area",
              help="Unit of a row; all but area read every record.")  # fmt: skip
@as_json
@at_place
def stat(place: Place, by: str, as_json: bool) -> int:
    """Count waiting mail in each area, or its ages by destination, recipient domain, last reply or age."""
    if by != "area":
        return _stat_by(place, by, as_json)
    with open_queue(place) as snapshot:
        stats, seen = snapshot.stats(), getattr(snapshot, "seen", None)
    if as_json:
        from mqcd.cli.queue.records import stat_lines

        sys.stdout.write(stat_lines(stats))
    else:
        from mqcd.cli.queue.tables import show_stats
        from mqcd.queue.manifest.clock_guard import doubt

        clock = SystemClock()
        show_stats(stats, clock.now())
        if seen is not None and (text := doubt(seen, clock)):
            click.echo(text)
    return 0


def _stat_by(place: Place, by: str, as_json: bool) -> int:
    from mqcd.cli.queue.shape import shape_lines, shape_of, show_shape

    now = SystemClock().now()
    sites: Mapping[str, str] = {}
    origins: Origins = ()
    if by == "destination":
        from mqcd.cli.queue.resolving import sites_at

        sites, origins = sites_at(place)
    with open_queue(place) as snapshot:
        shape = shape_of(snapshot, by, now, sites, origins)
    if as_json:
        sys.stdout.write("".join(shape_lines(shape)))
    else:
        show_shape(shape, now)
    return 1 if snapshot.left_out else 0


message_argument = click.argument("spid", callback=_spid)
"""The message that a command is for."""


@queue.command("cat", short_help="Print the content of a message.")
@message_argument
@at_place
def cat(place: Place, spid: int) -> None:
    """Print a message's content, octet for octet."""
    with open_queue(place) as snapshot:
        for chunk in snapshot.content(spid):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


@queue.command("export", short_help="Copy messages into a directory.")
@click.option("--to", "target", metavar="DIR", callback=_directory, required=True,
              help="A new or empty directory.")  # fmt: skip
@click.option("--without-manifest", is_flag=True,
              help="Read a damaged queue; finished mail may be included.")  # fmt: skip
@selects
@as_json
@at_place
def export(place: Place, /, target: Path, without_manifest: bool, as_json: bool, **chosen: Any) -> int:
    """Copy messages into a directory: an .eml file for each, and index.jsonl for them all."""
    from mqcd.disk.durable import Disk
    from mqcd.queue.admin.transfer.export import export as export_to
    from mqcd.queue.admin.transfer.export import export_view

    clock = SystemClock()
    selection = without_removed(selected_records(place, clock.now(), chosen), clock.now())
    settings = place.load().settings
    place.give_way()
    guessed = None
    with waiting(clock) as progress:
        if is_cluster(settings):
            queue = settings.queue
            need_access(target, drop_to_owner(queue.rootpath), os.R_OK | os.W_OK)
            roots = queue.rootpath, queue.spool.rootpath
            guessed = _guess(roots) if without_manifest else None
            state = guessed.state if guessed is not None else None
            done = export_to(Disk(), roots, selection, target, progress, state=state)
        else:
            done = export_view(Disk(), lambda: view_at(settings, place), selection, target, progress)
    if guessed is not None and guessed.lost:
        done.damaged += 1
    for spid, text in done.failed.items():
        click.echo(f"{spid:016X}: {text}", err=True)
    report_damaged(done.damaged)
    counts = {
        "messages": done.messages,
        "recipients": done.recipients,
        "gone": done.gone,
        "failed": len(done.failed),
        "damaged": done.damaged,
    }
    show(counts, counted(counts), as_json)
    return 1 if done.failed or done.damaged else 0


def _guess(roots: tuple[Path, Path]) -> Guess:
    from mqcd.disk.durable import Disk
    from mqcd.queue.admin.transfer.guess import guess

    guessed = guess(Disk(), *roots)
    for text in guessed.unread:
        click.echo(f"{text}: its contents are unknown", err=True)
    lost = f"{guessed.lost} " if guessed.lost else ""
    click.echo(
        f"{lost}the MANIFEST has {guessed.damaged} damaged lines; {guessed.unlisted} clusters that it "
        f"does not name are read from their beginning, {guessed.gone} that it names are missing. "
        "The export may contain finished recipients: check it before you send it",
        err=True,
    )
    return guessed


@queue.command("migrate", short_help="Move all mail to another store.")
@click.option("--from", "source", metavar="FILE", type=click.Path(path_type=Path), required=True,
              help="Configuration of the server that has the mail.")  # fmt: skip
@click.option("--to", "target", metavar="FILE", type=click.Path(path_type=Path), required=True,
              help="Configuration of the server that is to have it.")  # fmt: skip
@as_json
@at_place
def migrate(place: Place, source: Path, target: Path, as_json: bool) -> int:
    """Move all mail from the store of one configuration to that of another; no server may run on either.

    May be killed and run again; servers are started when it has ended.
    """
    from mqcd.daemon.migration.migrating import Configured
    from mqcd.daemon.migration.migrating import migrate as move

    ends = [Configured(replace(place, conf=each).load().settings, each) for each in (source, target)]
    root, user = ends[0].settings.queue.rootpath, ends[1].settings.application.user
    drop_to_owner(root, user)
    clock = SystemClock()
    with waiting(clock) as progress:
        done = interruptible(move(ends[0], ends[1], clock, progress))
    for spid, why in done.skipped.items():
        click.echo(f"{format_spid(spid)}: {why}", err=True)
    counts = {"found": done.found, "moved": done.moved, "skipped": len(done.skipped)}
    show(counts, counted(counts), as_json)
    return 1 if done.skipped else 0


def _for_people() -> bool:
    """Whether standard output is a terminal, or is to be taken for one."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def without_removed(selection: Selection, now: int) -> Selection:
    """Without what operators have removed, unless that area is asked for; `now` in ms."""
    from mqcd.core.selecting.where import parse_where

    if selection.area is not None:
        return selection
    kept = "area != removed"
    before = selection.where
    text = f"({before}) and {kept}" if before is not None else kept
    return replace(selection, where=parse_where(text, before.now if before is not None else now))


def selection_of(now: int, chosen: Mapping[str, Any]) -> Selection:
    """What the flags of `selects` say, for a server to take; `now` in ms."""
    from mqcd.core.address import normal_domain
    from mqcd.core.model import Area
    from mqcd.core.selecting.selection import Selection

    area, older = chosen["area"], chosen["older"]
    return Selection(
        area=Area(area) if area is not None else None,
        spid=chosen["spid"],
        sender=chosen["sender"],
        recipient=chosen["recipient"],
        domain=normal_domain(chosen["domain"]),
        received_before=now - older if older is not None else None,
        where=_where(chosen["where"], now),
        limit=chosen["limit"],
    )


def selected_records(place: Place, now: int, chosen: Mapping[str, Any]) -> Selection:
    """The same for records that are read here."""
    from mqcd.core.selecting.where_fields import LIVE

    selection = selection_of(now, chosen)
    if selection.where is None or selection.where.fields.isdisjoint(LIVE):
        return selection
    from mqcd.cli.queue.resolving import on_records

    return on_records(selection, place)


def _where(text: str | None, now: int) -> Where | None:
    from mqcd.core.selecting.where import parse_where

    try:
        return parse_where(text, now, live=True) if text is not None else None
    except DecodeError as error:
        raise click.BadParameter(str(error), param_hint="'--where'") from error
