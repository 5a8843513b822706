"""One message: its envelope, its recipients, its header and its history, from the queue and the event log.

A message that has left the queue has its events, as long as they are kept; its header went with its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from mqcd.config.settings import Settings
from mqcd.core.errors import ContentUnavailable, StoreUnavailable
from mqcd.core.events import Verb, format_time
from mqcd.core.queueing.spid import format_spid
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.daemon.control.records import recipient_row
from mqcd.daemon.control.view import View
from mqcd.daemon.hashkey import hash_key
from mqcd.disk.durable import Disk
from mqcd.eventlog.files import Source
from mqcd.eventlog.history import Event, History, history
from mqcd.queue.reading.happened import lines_of_all
from mqcd.queue.reading.shards import Snapshots
from mqcd.queue.reading.snapshot import Item

MOST_HEADER = 256 << 10
"""Octets of a header that are shown."""
_FOLD = re.compile(r"\r\n[ \t]+")
_ENVELOPE = ("sender", "origin", "listener", "client", "user", "tls", "zone")
_OWN = ("qid", "recipient", "area", "inflight", "due", "attempts", "status", "reply", "last")
"""Fields of a recipient; `area` is null when it has left the queue, `last` is the verb of its last event."""


@value
class Message:
    """What is known of a message."""

    spid: int
    items: Sequence[Item]
    """Recipients in the queue, by QID."""
    header: Sequence[tuple[str, str]] | None
    """Names and values, unfolded; None: the content is not to be had."""
    history: History

    @property
    def known(self) -> bool:
        """Whether there is such a message."""
        return bool(self.items or self.history.events)


def message_of(settings: Settings, view: Snapshots | View, spid: int) -> Message:
    """Look a message up. Raises StoreBusy, StoreUnavailable, ConfigError, OSError."""
    # The view is older than this look at the event files: what it lacks of the journal has a file.
    items = [item for batch in view.batches(Selection(spid=spid)) for item in batch]
    return Message(
        spid=spid,
        items=sorted(items, key=lambda item: item.recipient.qid),
        header=_header(view, items),
        history=history(Disk(), settings.ops.events.rootpath, spid, _unfiled(settings, view, spid)),
    )


def _unfiled(settings: Settings, view: Snapshots | View, spid: int) -> Iterable[str | bytes]:
    if isinstance(view, View):
        return view.events(spid)
    source = Source(node=settings.ops.node, shard=0, key=hash_key(settings.ops.events))
    return lines_of_all(view, source, spid)


def _header(view: Snapshots | View, items: Sequence[Item]) -> Sequence[tuple[str, str]] | None:
    if not items:
        return None
    head = b""
    recipient = items[0].recipient
    try:
        for chunk in view.content(recipient.spid, recipient):
            head += chunk
            if b"\r\n\r\n" in head or len(head) >= MOST_HEADER:
                break
    except (ContentUnavailable, StoreUnavailable):
        return None
    return header_fields(head[:MOST_HEADER])


def header_fields(head: bytes) -> list[tuple[str, str]]:
    """Names and values of a header section at the beginning of some octets."""
    section = (b"\r\n" + head).partition(b"\r\n\r\n")[0].decode("utf-8", "replace")
    lines = (line.partition(":") for line in _FOLD.sub(" ", section).split("\r\n"))
    return [(name.rstrip(), value.strip()) for name, colon, value in lines if colon]


def fields_of(message: Message) -> dict[str, object]:
    """As a JSON object."""
    return {"spid": format_spid(message.spid), **envelope_of(message), **_rest(message)}


def parts_of(message: Message) -> dict[str, object]:
    """The same with the envelope as an object of its own."""
    return {"spid": format_spid(message.spid), "envelope": envelope_of(message), **_rest(message)}


def _rest(message: Message) -> dict[str, object]:
    return {
        "recipients": list(_recipients(message)),
        "headers": [list(each) for each in message.header] if message.header is not None else None,
        "history": list(message.history.events),
        "unread": list(message.history.unread),
    }


def envelope_of(message: Message) -> dict[str, object]:
    """What its recipients share."""
    events = message.history.events
    accepted: Event = next((each for each in events if each["event"] == Verb.ACCEPTED), {})
    if not message.items:
        known = {name: accepted.get(name, "") for name in _ENVELOPE}
        return {**known, "received": accepted.get("at"), "size": accepted.get("size")}
    recipient = message.items[0].recipient
    known = {name: str(getattr(recipient.envelope, name)) for name in _ENVELOPE}
    return {**known, "received": format_time(recipient.envelope.received), "size": recipient.size}


def _recipients(message: Message) -> Iterator[dict[str, object]]:
    last = {event["qid"]: event for event in message.history.events}
    queued = {item.recipient.qid: item for item in message.items}
    for qid in sorted(last.keys() | queued.keys()):
        verb = last[qid]["event"] if qid in last else None
        item = queued.get(qid)
        known = _ended(message, qid) if item is None else recipient_row(item.recipient, item.in_flight)
        yield {name: known.get(name) for name in _OWN} | {"qid": qid, "last": verb}


def _ended(message: Message, qid: int) -> dict[str, object]:
    """What the events say of a recipient that has left the queue."""
    of_it = [event for event in message.history.events if event["qid"] == qid]
    last = next((event for event in reversed(of_it) if "code" in event), {})
    reply = f"{last['code']} {last.get('reply', '')}".rstrip() if last else None
    return {
        "recipient": next((event["recipient"] for event in reversed(of_it) if "recipient" in event), None),
        "inflight": False,
        "attempts": sum(event["event"] == Verb.ATTEMPTED for event in of_it),
        "status": last.get("status"),
        "reply": reply,
    }
