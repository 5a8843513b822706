"""`pipeline advise`: proposes, lists, applies and cancels advice; or replays outages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from mqcd.cli.options import Place, json_line, show
from mqcd.cli.upkeep import drop_to_owner
from mqcd.core.display import printable
from mqcd.net.clock import SystemClock

if TYPE_CHECKING:
    from mqcd.advice.desk import Desk, Piece
    from mqcd.config.settings import Settings
    from mqcd.core.progress import Progress
    from mqcd.pipeline.spark.session import SparkSession
    from mqcd.pipeline.store.store import Store

    Opened = AbstractContextManager[tuple[SparkSession, Store, Settings, Progress]]


def review(place: Place, listing: bool, cancelled: str | None, as_json: bool) -> None:
    """List pieces, apply the proposal, or cancel a piece. Needs no Spark."""
    from mqcd.advice.desk import Desk

    settings = place.load().settings
    drop_to_owner(settings.queue.rootpath)
    desk = Desk(settings.ops.advice.rootpath, SystemClock().now())
    if cancelled is not None:
        piece = desk.cancel(cancelled)
        fields = _fields("cancelled", piece)
        words = f"cancelled, and not proposed again before {_day(fields)}: {_subject(fields)}"
        show(fields, words, as_json)
    elif listing:
        _list(desk, as_json)
    else:
        done = desk.apply()
        counts = {"added": done.added, "kept": done.kept, "dropped": done.dropped}
        words = f"in effect: {done.added} new, {done.kept} as before; no longer: {done.dropped}"
        show(counts, words, as_json)


def _list(desk: Desk, as_json: bool) -> None:
    """Every piece of every file; the text output shows one that is in effect as proposed once."""
    seen: dict[str, Piece] = {}
    shown: list[tuple[str, Piece]] = []
    for kind, piece in desk.pieces():
        if as_json:
            click.echo(json_line(_fields(kind, piece)), nl=False)
        elif seen.get(piece.id) != piece:
            shown.append((kind, piece))
        seen[piece.id] = piece
    _show_by_site(shown, len(shown))
    if not seen and not as_json:
        click.echo("no advice: nothing is in effect, proposed or cancelled")


def _show_by_site(pieces: list[tuple[str, Piece]], most: int) -> None:
    """The first pieces, site by site: where most is to be saved comes first."""
    by_site: dict[str, list[tuple[str, Piece]]] = {}
    for kind, piece in pieces:
        by_site.setdefault(_site(piece), []).append((kind, piece))
    sums = {site: sum(piece.saves for _, piece in each) for site, each in by_site.items()}
    left = most
    for site in sorted(by_site, key=lambda name: (-sums[name], name)):
        each = by_site[site][:left]
        if not each:
            return
        left -= len(each)
        saved = (
            f"saves some {sums[site]} attempts in 30 days" if sums[site] else "saves time, and no attempts"
        )
        click.echo(printable(f"{site}: {saved}"))
        for kind, piece in each:
            click.echo(f"  {kind:<9} {_in_words(_fields(kind, piece))}")


def _site(piece: Piece) -> str:
    """Whose a piece is; in files of an earlier mqcd the domain stands for it."""
    if hasattr(piece, "match"):
        return piece.match
    return piece.site or piece.recipient.rpartition("@")[2]


def propose(opened: Opened, most: int | None, as_json: bool) -> None:
    """Make a proposal from the tables, and print it."""
    from mqcd.advice.desk import ACTIVE, PROPOSED, Desk

    with opened as (spark, store, server, progress):
        from mqcd.pipeline.advice.decisions import Rules
        from mqcd.pipeline.advice.making import Basis, make

        now = SystemClock().now()
        desk = Desk(server.ops.advice.rootpath, now)
        rules = Rules(most=most) if most else Rules()
        basis = Basis(now=now, delays=server.queue.retry_delays, active=desk.read(ACTIVE), rules=rules)
        found = make(spark, store, basis, progress)
        proposal = desk.propose(found.advice)
    if as_json:
        for piece in proposal.pieces():
            click.echo(json_line(_fields(PROPOSED, piece)), nl=False)
        for alone in found.unadvised:
            fields = {"state": "unadvised", "subject": alone.subject, "why": alone.why}
            click.echo(json_line(fields), nl=False)
        return
    _show_by_site([(PROPOSED, piece) for piece in proposal.pieces()], _PIECES)
    for alone in found.unadvised[:_PIECES]:
        click.echo(printable(f"not advised: {alone.subject}: {alone.why}"))
    if len(found.unadvised) > _PIECES:
        click.echo(f"not advised: {len(found.unadvised) - _PIECES} more; --json names them")
    if len(proposal) > _PIECES:
        click.echo(f"and {len(proposal) - _PIECES} more: `--list` shows them")
    if found.left_out:
        click.echo(f"{found.left_out} dead recipients with fewer refusals are left out: `--most` takes more")
    click.echo(f"{len(proposal)} pieces proposed in {desk.path(PROPOSED)}; `--apply` puts them in effect")


_PIECES = 50
"""Pieces of a proposal in the text output."""


def what_if(opened: Opened, delays: tuple[int, ...], days: int, as_json: bool) -> None:
    """Replay the outages of the last days of the record under other retry delays."""
    with opened as (spark, store, server, progress):
        from mqcd.core.queueing.schedule import RetrySchedule
        from mqcd.pipeline import frames
        from mqcd.pipeline.advice.outages import what_if, with_delays
        from mqcd.pipeline.advice.showing import as_object, table

        queue = server.queue
        schedule = RetrySchedule(
            delays=queue.retry_delays,
            maxtime=queue.retry_maxtime,
            maxtime_reports=queue.retry_maxtime_reports,
            jitter=queue.retry_jitter / 100,
        )
        progress("replaying outages", 0, 0)
        last = store.last().last_hour
        period = frames.days_of(range(last - 24 * (days - 1), last + 1))
        events = frames.read(spark, store, "events", period)
        found = what_if(events, schedule, with_delays(schedule, delays))
    if as_json:
        for each in (*found.sites, found.total):
            click.echo(json_line(as_object(each)), nl=False)
    elif not found.total.recipients:
        click.echo(f"no outage is recorded from {period[0]} to {period[-1]}")
    else:
        for line in table(found, schedule.delays, delays):
            click.echo(line)


def _fields(kind: str, piece: Piece) -> dict[str, object]:
    """A piece of advice as one object."""
    from mqcd.config.advice import attributes

    return {"state": kind, **attributes(piece)}


def _subject(fields: dict[str, object]) -> str:
    return printable(str(fields.get("recipient") or fields["match"]))


def _day(fields: dict[str, object]) -> str:
    return str(fields["until"])[:10]


def _in_words(fields: dict[str, object]) -> str:
    """Two lines: what is to be done, and why."""
    limits = [
        f"{name} {fields[name]}"
        for name in ("rate", "maxserverconnections", "retry_delays")
        if name in fields
    ]
    what = ", ".join(limits) or "suppressed"
    why = "; ".join(str(fields[name]) for name in ("reason", "reply", "evidence") if name in fields)
    return (
        f"{fields['id']}  {_subject(fields)}: {printable(what)}, until {_day(fields)}\n    {printable(why)}"
    )
