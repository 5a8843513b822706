"""`rule`: what becomes of mail as long as a rule stands. The server keeps the rules and goes by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from mqcd.cli.asking import ask, control_at, show_done
from mqcd.cli.options import Place, as_json, at_place, show
from mqcd.cli.upkeep import drop_to_owner
from mqcd.core.display import printable
from mqcd.net.clock import SystemClock

_ACTIONS = ("hold", "suspend", "slow", "bounce")


@click.group(short_help="Hold, suspend, slow or bounce mail by standing rules.")
def rule() -> None:
    """Standing rules: each does one thing to all mail that its condition selects, now and later, until it
    ends or is cancelled."""


@rule.command("ls", short_help="List the rules that stand.")
@as_json
@at_place
def ls(place: Place, as_json: bool) -> None:
    """List the rules that stand, also the ones that the server made for replies."""
    for each in _listed(place):
        show(each, printable(_line(each)), as_json)


@rule.command(short_help="Add a rule.")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.option("--where", metavar="EXPR", required=True,
              help="Condition, such as 'sender ~ *@example.org' or 'site = mx.example.net'.")  # fmt: skip
@click.option("--name", metavar="TEXT", help="Name, for people.")
@click.option("--reason", metavar="TEXT", help="Reason, for log, events and reports.")
@click.option("--for", "span", metavar="DURATION", help="End after this time, such as 2h.")
@click.option("--until", metavar="TIME", help="End at 18:00 (of this machine), or 2026-01-31T18:00:00Z.")
@click.option("--rate", metavar="RATE", help="slow: so many recipients to each destination, such as 10/s.")
@click.option("--connections", metavar="N", type=click.IntRange(min=1),
              help="slow: so many connections to each destination.")  # fmt: skip
@click.option("--no-report", is_flag=True, help="bounce: send no reports.")
@click.option("--dry-run", is_flag=True, help="Only count the waiting mail, and show the first few.")
@as_json
@at_place
def add(
    place: Place,
    /,
    action: str,
    span: str | None,
    until: str | None,
    no_report: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Add a rule. ACTION is hold, suspend, slow or bounce.

    Mail that waits comes under it as well as mail that comes later.
    """
    if span is not None and until is not None:
        raise click.UsageError("say --for or --until, and not both")
    fields = {name: value for name, value in given.items() if value is not None}
    fields |= {"action": action, "for": span, "until": _moment(until) if until is not None else None}
    if no_report:
        fields["report"] = False
    done = ask(control_at(place), "/v1/rules", fields)
    if done["rule"] is None:
        text = f"waiting mail that comes under it: {done['matched']}"
    else:
        text = f"{_line(done['rule'])}\nto end it: mqcd rule cancel {done['rule']['id']}"
    return show_done(done, text, as_json)


@rule.command(short_help="End a rule.")
@click.argument("id")
@as_json
@at_place
def cancel(place: Place, /, id: str, as_json: bool) -> None:  # noqa: A002 - the word that the help shows
    """End a rule. What it has held or bounced stays so, and the command that takes it back is shown."""
    done = ask(control_at(place), "/v1/rules/cancel", {"id": id})
    text = f"{id} has ended"
    if done["undo"]:
        text += f"\nwhat it put into area {done['stays']} stays there; to take that back: {done['undo']}"
    show(done, text, as_json)


def _listed(place: Place) -> list[dict[str, Any]]:
    """By the server, else from the file."""
    from mqcd.daemon.rules.book import read_rules, rules_path
    from mqcd.daemon.rules.form import fields_of
    from mqcd.net.control.client import NoAccess, NoAnswer

    try:
        rows: list[dict[str, Any]] = ask(control_at(place), "/v1/rules")
    except NoAccess:
        raise
    except NoAnswer as error:
        click.echo(f"{error}: these are the rules that its start finds", err=True)
        settings = place.load().settings
        drop_to_owner(settings.queue.rootpath)
        rows = [{**fields_of(each)} for each in read_rules(rules_path(settings), SystemClock().now())]
    return rows


def _moment(text: str) -> str:
    """`--until` in the form of RFC 3339: a time of day is the next one of this machine's clock."""
    from datetime import UTC, datetime, timedelta

    try:
        time = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        return text
    now = datetime.fromtimestamp(SystemClock().now() / 1000, UTC).astimezone()
    then = datetime.combine(now.date(), time).astimezone()
    if then <= now:
        then = datetime.combine(now.date() + timedelta(days=1), time).astimezone()
    return then.isoformat()


def _line(each: Mapping[str, Any]) -> str:
    """A rule on one line."""
    limits = [f"{each['rate']}"] * bool(each["rate"])
    limits += [f"{each['connections']} connections"] * bool(each["connections"])
    detail = f" ({', '.join(limits)})" if limits else ""
    words = [f"{each['id']}  {each['action']}{detail}  {each['where']}"]
    words.append(f"until {each['until'] or 'cancelled'}")
    words.append(f"by {each['by']}")
    if "applied" in each:
        words.append(f"applied {each['applied']}")
    words += [text for text in (each["name"], each["reason"]) if text]
    return "  ".join(words)
