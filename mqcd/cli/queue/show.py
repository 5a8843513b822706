"""`queue show`: one message, with what has happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mqcd.cli.options import Place, as_json, at_place, json_line
from mqcd.cli.queue.commands import message_argument, queue
from mqcd.cli.queue.opening import open_queue
from mqcd.core.display import printable
from mqcd.core.queueing.spid import format_spid

if TYPE_CHECKING:
    from mqcd.daemon.control.message import Message

_TOLD = ("sender", "received", "size", "origin", "listener", "client", "user", "tls", "zone")
_DETAILS = (
    "attempt", "destination", "remote_host", "remote_addr", "source_addr", "code", "status", "reply", "due",
    "report", "batch", "by", "reason", "target", "until", "undoes",
)  # fmt: skip
"""Fields of events that people are shown, in this order."""


@queue.command("show", short_help="Show a message and its history.")
@message_argument
@as_json
@at_place
def show(place: Place, spid: int, as_json: bool) -> int:
    """Show a message: its envelope, its recipients, its header and what has happened to it.

    The history is read from the event log and the journal; it remains when the message has left the queue.
    """
    from mqcd.daemon.control.message import fields_of, message_of

    settings = place.load().settings
    with open_queue(place) as view:
        message = message_of(settings, view, spid)
    for each in message.history.unread:
        click.echo(f"the history may lack events: {each}", err=True)
    if not message.known:
        click.echo(f"message {format_spid(spid)} is in neither the queue nor the event log", err=True)
        return 1
    fields = fields_of(message)
    click.echo(json_line(fields) if as_json else "".join(_in_words(message, fields)), nl=False)
    return 0


def _in_words(message: Message, fields: dict[str, Any]) -> Iterator[str]:
    """Lines for people."""
    yield click.style(f"message {fields['spid']}", bold=True) + "\n"
    for name in _TOLD:
        value = fields[name] or ("<>" if name == "sender" else "")
        if value:
            yield printable(f"  {name:<10} {value}") + "\n"
    yield "\n" + click.style("recipients", bold=True) + "\n"
    for each in fields["recipients"]:
        yield printable(f"  {each['qid']:<4} {each['recipient']}  {_state(each)}") + "\n"
        if each["reply"]:
            yield printable(f"       {each['reply']}") + "\n"
    if message.header:
        yield "\n" + click.style("header", bold=True) + "\n"
        yield from (printable(f"  {name}: {value}") + "\n" for name, value in message.header)
    yield "\n" + click.style("history", bold=True) + "\n"
    for event in message.history.events:
        details = (f"{name}={event[name]}" for name in _DETAILS if name in event)
        line = f"  {event['at']}  {event['qid']:<4} {event['event']:<15} {' '.join(details)}"
        yield printable(line).rstrip() + "\n"


def _state(recipient: dict[str, Any]) -> str:
    if recipient["area"] is None:
        return str(recipient["last"])
    attempts = f", attempts {recipient['attempts']}" if recipient["attempts"] else ""
    due = f", due {recipient['due']}" if recipient["due"] else ""
    return f"{recipient['area']}{', in flight' if recipient['inflight'] else ''}{attempts}{due}"
