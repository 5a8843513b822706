"""`explain`: where mail goes, by which rule, and why it has not gone yet."""

from __future__ import annotations

from collections.abc import Mapping

import click

from mqcd.cli.options import Place, as_json, at_place
from mqcd.cli.upkeep import drop_to_owner
from mqcd.core.display import printable
from mqcd.net.clock import SystemClock


@click.command(short_help="Show where mail goes and what it waits for.")
@click.argument("asked", metavar="ADDRESS|DOMAIN|SPID")
@click.option("--sender", metavar="ADDRESS", default="", help="Sender of the mail; some rules look at it.")
@as_json
@at_place
def explain(place: Place, asked: str, sender: str, as_json: bool) -> int:
    """Show where mail for an address, a domain or the message SPID goes, and what it waits for."""
    import asyncio
    import json

    from mqcd.daemon.control.explaining import ask_server, explain_files
    from mqcd.net.control.client import NoAnswer

    settings = place.load().settings
    try:
        found = ask_server(settings.ops, asked, sender)
    except NoAnswer as error:
        click.echo(f"{error}: explained from the files and DNS", err=True)
        drop_to_owner(settings.queue.rootpath)
        found = asyncio.run(explain_files(settings, SystemClock(), asked, sender))
    for each in found:
        click.echo(json.dumps(each, separators=(",", ":")) if as_json else _in_words(each))
    return 0


_LABELS = {
    "destination": "goes to",
    "rule": "by",
    "zone": "zone",
    "mx": "hosts",
    "limits": "limits",
    "schedule": "retries",
    "attempts": "attempts",
    "reply": "last reply",
    "suppressed": "refused",
    "due": "due",
    "waiting_for": "waits for",
    "next": "next",
}


def _in_words(explanation: Mapping[str, object]) -> str:
    """A paragraph for people."""
    name = str(explanation["recipient"])
    if "spid" in explanation:
        name = f"{explanation['spid']}/{explanation['qid']} {name}"
    sender = explanation["sender"] or "<>"
    lines = [click.style(printable(f"{name} from {sender}"), bold=True)]
    for field, label in _LABELS.items():
        value = explanation.get(field)
        if value not in (None, [], ""):
            lines.append(f"  {label:<11} {printable(_text(field, value))}")
    return "\n".join(lines)


def _text(field: str, value: object) -> str:
    from mqcd.config.kinds.fields import Duration

    show = Duration().show
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if field == "next" and isinstance(value, Mapping):
        host = f" to {value['host']}" if value["host"] else ""
        source = f" from {value['source']}" if value["source"] else ""
        return f"{value['at'] or 'at a time not known'}{host}{source} (blocked by: {value['blocked_by']})"
    if field == "limits" and isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items() if each not in (None, []))
    if field == "schedule" and isinstance(value, Mapping):
        delays = " | ".join(map(show, value["retry_delays_ms"]))
        return f"after {delays}, given up at {show(value['retry_maxtime_ms'])}"
    return str(value)


def _plain(value: object) -> str:
    return " | ".join(map(str, value)) if isinstance(value, list) else str(value)
