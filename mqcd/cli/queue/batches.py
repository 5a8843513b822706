"""`queue retry`, `hold` and the other actions: the server carries them out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from mqcd.cli.asking import ask, control_at, show_done
from mqcd.cli.options import DURATION, Command, Place, as_json, at_place, show
from mqcd.cli.progress import waiting
from mqcd.cli.queue.commands import queue, selection_of, selects
from mqcd.core.display import printable
from mqcd.net.clock import SystemClock

_BATCH, _BATCHES = "/v1/batch", "/v1/batches"
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


def acts(command: Command) -> Any:
    """What all actions take; flags of one alone come before it."""
    reason = click.option("--reason", metavar="TEXT", default="", help="Reason, for log and events.")
    dry_run = click.option("--dry-run", is_flag=True, help="Only count, and show the first few.")
    return selects(dry_run(reason(as_json(at_place(command)))))


def _carry_out(place: Place, action: str, chosen: Mapping[str, Any], **details: Any) -> int:
    """Have the running server do it, wait for the end, and show what came of it. Gives the exit code: 1 where
    not all shards took part. Raises NoAnswer, DecodeError."""
    from mqcd.daemon.control.selections import selection_fields

    dry_run = chosen["dry_run"]
    selection = selection_fields(selection_of(SystemClock().now(), chosen))
    fields = {"action": action, "reason": chosen["reason"], "selection": selection, "dry_run": dry_run}
    done = _ask(place, fields | details)
    return show_done(done, _summary(action, done, dry_run=dry_run), chosen["as_json"])


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


def _ask(place: Place, fields: Mapping[str, object]) -> Mapping[str, Any]:
    """The server's last word on a batch."""
    from mqcd.net.control.client import NoAnswer

    control = control_at(place)
    with waiting(SystemClock()) as progress:
        done = ask(control, _BATCH, fields)
        left_out = {"left_out": done["left_out"]} if "left_out" in done else {}
        while not done["done"]:
            progress(done["trouble"] or "changing recipients", done["changed"], 0)
            time.sleep(_POLL_S)
            try:
                done = ask(control, f"{_BATCHES}?id={done['batch']}")
            except NoAnswer as error:
                text = f"{error}; batch {done['batch']} is recorded, and the next start goes on with it"
                raise NoAnswer(text) from error
    return {name: value for name, value in done.items() if name not in ("done", "trouble")} | left_out


@queue.command("retry", short_help="Try waiting mail now.")
@acts
def retry(place: Place, /, **chosen: Any) -> int:
    """Try waiting mail now: all of it, or a selection.

    One recipient probes each suspended destination; the others follow when the probe succeeds. Connections
    and rates are limited as always.
    """
    return _carry_out(place, "retry", chosen)


@queue.command("hold", short_help="Keep waiting mail back until it is released.")
@acts
def hold(place: Place, /, **chosen: Any) -> int:
    """Keep mail back that waits for an attempt: all of it, or a selection. It stays held over restarts.

    Mail in flight follows, unless its attempt delivers it.
    """
    return _carry_out(place, "hold", chosen)


@queue.command("release", short_help="Let held mail be tried again, now.")
@acts
def release(place: Place, /, **chosen: Any) -> int:
    """Let held mail be tried again, from now on."""
    return _carry_out(place, "release", chosen)


@queue.command("remove", short_help="Remove mail; it can be restored for a time.")
@click.option("--report", is_flag=True, help="Report it to the senders when it cannot be restored any more.")
@acts
def remove(place: Place, /, report: bool, **chosen: Any) -> int:
    """Remove mail from the queue; `mqcd queue undo` restores it within the time that `grace` says.

    Mail in flight follows, unless its attempt delivers it.
    """
    return _carry_out(place, "remove", chosen, report=report)


@queue.command("bounce", short_help="Return mail to its senders.")
@click.option("--no-report", is_flag=True, help="Send no reports.")
@acts
def bounce(place: Place, /, no_report: bool, **chosen: Any) -> int:
    """Return mail to its senders.

    The reports leave after `grace`; until then `mqcd queue undo` restores the mail.
    """
    return _carry_out(place, "bounce", chosen, report=not no_report)


@queue.command("redirect", short_help="Send mail by another host, or to another address.")
@click.option("--to", "target", metavar="HOP|ADDRESS", default="",
              help="A next hop such as relay.example:25, or an address.")  # fmt: skip
@acts
def redirect(place: Place, /, target: str, **chosen: Any) -> int:
    """Send mail by another next hop, or to another address."""
    if not (target or chosen["dry_run"]):
        raise click.UsageError("say --to; only --dry-run needs none")
    return _carry_out(place, "redirect", chosen, target=target)


@queue.command("reschedule", short_help="Choose when waiting mail is tried next.")
@click.option("--in", "delay", metavar="DURATION", type=DURATION, help="After this time, such as 1h30m.")
@click.option("--at", "moment", metavar="TIME", type=click.DateTime(), help="At this time, UTC.")
@acts
def reschedule(place: Place, /, delay: int | None, moment: Any, **chosen: Any) -> int:
    """Choose when waiting mail is tried next: not later than the longest retry delay from now."""
    from datetime import UTC

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
@acts
def undo(place: Place, /, batch: str, **chosen: Any) -> int:
    """Restore every recipient of an action that nothing but a retry has changed since."""
    return _carry_out(place, "undo", chosen, target=batch)


@queue.command("batches", short_help="List the last actions.")
@as_json
@at_place
def batches(place: Place, as_json: bool) -> int:
    """List the last actions, the newest first: who asked, how far each is, and whether it can be undone."""
    rows = ask(control_at(place), _BATCHES)
    for row in rows:
        show(row, printable(_line(row)), as_json)
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
