"""`queue retry`, `hold` and the other actions: the server carries them out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.options import DURATION, Command, Place, as_json, at_place, json_line
from mqcd.cli.queue.commands import queue, selection_of, selects
from mqcd.cli.queue.resolving import report_unrouted

if TYPE_CHECKING:
    from mqcd.core.model import Action
    from mqcd.core.selecting.selection import Selection
    from mqcd.net.control.client import Control

_ASK_S = 600
_POLL_S = 0.2
_DONE = {
    "retry": "due now",
    "hold": "held",
    "release": "released",
    "remove": "removed",
    "bounce": "bounced",
    "redirect": "redirected",
    "reschedule": "rescheduled",
    "undo": "restored",
}
_NOTHING_LEFT = (
    "nothing is as that batch left it: changed or settled since, undone, or there was none of that name; "
    "`mqcd queue batches` lists the last ones"
)


def _acts(command: Command) -> Command:
    """The flags of all actions."""
    command = click.option("--reason", metavar="TEXT", default="", help="Reason, for log and events.")(
        command
    )
    return click.option("--dry-run", is_flag=True, help="Only count, and show the first few.")(command)


def _carry_out(place: Place, action: str, chosen: Mapping[str, Any], **details: Any) -> int:
    """Do it, and say what came of it. Gives the exit code: 1 where not all shards took part."""
    from mqcd.core.model import Action
    from mqcd.net.clock import SystemClock

    clock = SystemClock()
    as_json, dry_run, reason = chosen["as_json"], chosen["dry_run"], chosen["reason"]
    others = {name: value for name, value in chosen.items() if name not in ("as_json", "dry_run", "reason")}
    selection = selection_of(clock.now(), **others)
    control = place.load().settings.ops.control.path
    done = ask_batch(control, Action(action), selection, dry_run=dry_run, reason=reason, **details)
    left_out = done.get("left_out", ())
    for each in left_out:
        click.echo(each, err=True)
    report_unrouted(done.get("unrouted", 0))
    if as_json:
        click.echo(json_line(done), nl=False)
        return 1 if left_out else 0
    for each in done.get("sample", ()):
        click.echo(f"{each['spid']}/{each['qid']}  {each['area']}  <{each['sender']}> -> {each['recipient']}")
    click.echo(_summary(action, done, dry_run=dry_run))
    return 1 if left_out else 0


def _summary(action: str, done: Mapping[str, Any], *, dry_run: bool) -> str:
    if not done["matched"]:
        return _NOTHING_LEFT if action == "undo" else "nothing matches"
    busy = ""
    if done["in_flight"]:
        follows = "being tried" if action == "retry" else "what is not delivered follows"
        busy = f", in flight: {done['in_flight']} ({follows})"
    if dry_run:
        return f"would be {_DONE[action]}: {done['changed']}{busy}"
    again = "" if action == "undo" else f"; to take it back: mqcd queue undo {done['batch']}"
    return f"{_DONE[action]}: {done['changed']}{busy}{again}"


def ask_batch(
    control: Path, action: Action, selection: Selection, *, dry_run: bool, reason: str, **details: Any
) -> Mapping[str, Any]:
    """Have the running server do it, and wait for the end. Raises NoAnswer, DecodeError."""
    from mqcd.cli.progress import waiting
    from mqcd.daemon.control.actions.batches import BATCH, BATCHES
    from mqcd.daemon.control.selections import selection_fields
    from mqcd.net.clock import SystemClock
    from mqcd.net.control.client import Control

    socket = Control(control)
    fields = {
        "action": action.value,
        "reason": reason,
        "selection": selection_fields(selection),
        "dry_run": dry_run,
        **details,
    }
    with waiting(SystemClock()) as progress:
        done = _answer(*socket.post(BATCH, fields, _ASK_S))
        left_out = {"left_out": done["left_out"]} if "left_out" in done else {}
        while not done["done"]:
            progress(done["trouble"] or "changing recipients", done["changed"], 0)
            time.sleep(_POLL_S)
            done = _followed(socket, f"{BATCHES}?id={done['batch']}", done["batch"])
    return {name: value for name, value in done.items() if name not in ("done", "trouble")} | left_out


def _followed(socket: Control, page: str, batch: str) -> dict[str, Any]:
    """How far a batch is. Raises NoAnswer."""
    from mqcd.net.control.client import NoAnswer

    try:
        return _answer(*socket.get(page, _ASK_S))
    except NoAnswer as error:
        raise NoAnswer(f"{error}; batch {batch} is recorded, and the next start goes on with it") from error


def _answer(status: int, text: str) -> dict[str, Any]:
    from http import HTTPStatus

    from mqcd.core.errors import DecodeError
    from mqcd.net.control.client import NoAnswer

    if status == HTTPStatus.BAD_REQUEST:
        raise DecodeError(text.strip())
    if status != HTTPStatus.OK:
        raise NoAnswer(f"the server says: {text.strip()}")
    done: dict[str, Any] = json.loads(text)
    return done


@queue.command("retry", short_help="Try waiting mail now.")
@selects
@_acts
@as_json
@at_place
def retry(place: Place, /, **chosen: Any) -> int:
    """Try waiting mail now: all of it, or a selection.

    One recipient probes each suspended destination; the others follow when the probe succeeds. Connections
    and rates are limited as always.
    """
    return _carry_out(place, "retry", chosen)


@queue.command("hold", short_help="Keep waiting mail back until it is released.")
@selects
@_acts
@as_json
@at_place
def hold(place: Place, /, **chosen: Any) -> int:
    """Keep mail back that waits for an attempt: all of it, or a selection. It stays held over restarts.

    Mail in flight follows, unless its attempt delivers it.
    """
    return _carry_out(place, "hold", chosen)


@queue.command("release", short_help="Let held mail be tried again, now.")
@selects
@_acts
@as_json
@at_place
def release(place: Place, /, **chosen: Any) -> int:
    """Let held mail be tried again, from now on."""
    return _carry_out(place, "release", chosen)


@queue.command("remove", short_help="Remove mail; it can be restored for a time.")
@selects
@click.option("--report", is_flag=True, help="Report it to the senders when it cannot be restored any more.")
@_acts
@as_json
@at_place
def remove(place: Place, /, report: bool, **chosen: Any) -> int:
    """Remove mail from the queue; `mqcd queue undo` restores it within the time that `grace` says.

    Mail in flight follows, unless its attempt delivers it.
    """
    return _carry_out(place, "remove", chosen, report=report)


@queue.command("bounce", short_help="Return mail to its senders.")
@selects
@click.option("--no-report", is_flag=True, help="Send no reports.")
@_acts
@as_json
@at_place
def bounce(place: Place, /, no_report: bool, **chosen: Any) -> int:
    """Return mail to its senders.

    The reports leave after `grace`; until then `mqcd queue undo` restores the mail.
    """
    return _carry_out(place, "bounce", chosen, report=not no_report)


@queue.command("redirect", short_help="Send mail by another host, or to another address.")
@click.option("--to", "target", metavar="HOP|ADDRESS", default="",
              help="A next hop such as relay.example:25, or an address.")  # fmt: skip
@selects
@_acts
@as_json
@at_place
def redirect(place: Place, /, target: str, **chosen: Any) -> int:
    """Send mail by another next hop, or to another address."""
    if not (target or chosen["dry_run"]):
        raise click.UsageError("say --to; only --dry-run needs none")
    return _carry_out(place, "redirect", chosen, target=target)


@queue.command("reschedule", short_help="Choose when waiting mail is tried next.")
@click.option("--in", "delay", metavar="DURATION", type=DURATION, help="After this time, such as 1h30m.")
@click.option("--at", "moment", metavar="TIME", type=click.DateTime(), help="At this time, UTC.")
@selects
@_acts
@as_json
@at_place
def reschedule(place: Place, /, delay: int | None, moment: Any, **chosen: Any) -> int:
    """Choose when waiting mail is tried next: not later than the longest retry delay from now."""
    from datetime import UTC

    from mqcd.net.clock import SystemClock

    if delay is not None and moment is not None:
        raise click.UsageError("say --in or --at, not both")
    if delay is not None:
        until = SystemClock().now() + delay
    elif moment is not None:
        until = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    elif chosen["dry_run"]:
        until = 0
    else:
        raise click.UsageError("say --in or --at; only --dry-run needs neither")
    return _carry_out(place, "reschedule", chosen, until=until)


@queue.command("undo", short_help="Take an action back.")
@click.argument("batch")
@selects
@_acts
@as_json
@at_place
def undo(place: Place, /, batch: str, **chosen: Any) -> int:
    """Restore every recipient of an action that nothing but a retry has changed since."""
    return _carry_out(place, "undo", chosen, target=batch)


@queue.command("batches", short_help="List the last actions.")
@as_json
@at_place
def batches(place: Place, as_json: bool) -> int:
    """List the last actions, the newest first: who asked, how far each is, and whether it can be undone."""
    from mqcd.core.display import printable
    from mqcd.daemon.control.actions.batches import BATCHES
    from mqcd.net.control.client import Control

    status, text = Control(place.load().settings.ops.control.path).get(BATCHES, _ASK_S)
    rows: Any = _answer(status, text)
    for row in rows:
        click.echo(json_line(row) if as_json else printable(_line(row)) + "\n", nl=False)
    if not rows:
        click.echo("no action is known", err=True)
    return 0


def _line(row: Mapping[str, Any]) -> str:
    """A batch for people."""
    state = "" if row["done"] else f", under way {row['trouble']}".rstrip()
    until = f" until {row['undo_until']}" if row["undo_until"] else ""
    chosen = " ".join(f"{name}={value}" for name, value in row["selection"].items() if name != "now")
    parts = [
        f"{row['at']}  {row['batch']}  by {row['by']}",
        f"{_DONE.get(row['action'], row['action'])}: {row['changed']}{state}",
        f"can be undone{until}" if row["undo"] else "",
        chosen,
        f"({row['reason']})" if row["reason"] else "",
    ]
    return "  ".join(filter(None, parts))
