"""The queue as JSON: one object a line, names and units as scripts rely on them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from mqcd.core.events import format_time
from mqcd.core.model import Area, AreaStats
from mqcd.core.spid import format_spid
from mqcd.queue.snapshot import Item

# Recipients of one message share their times, and writing a date is the dearest part of a line.
_time = lru_cache(maxsize=64)(format_time)
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def lines(batches: Iterable[list[Item]]) -> Iterator[str]:
    """Recipients, a batch of lines at a time."""
    for batch in batches:
        yield "".join([f"{_encode(fields(item))}\n" for item in batch])


def fields(item: Item) -> dict[str, object]:
    """One recipient. What there is not (yet) is null: no due time, no reply."""
    recipient = item.recipient
    envelope = recipient.envelope
    return {
        "spid": format_spid(envelope.spid),
        "qid": recipient.qid,
        "area": recipient.area.value,
        "inflight": item.in_flight,
        "sender": envelope.sender,
        "recipient": recipient.address,
        "received": _time(envelope.received),
        "due": _time(recipient.due) if recipient.due else None,
        "attempts": recipient.attempts,
        "size": recipient.size,
        "status": recipient.status or None,
        "reply": f"{recipient.code} {recipient.reply}".rstrip() if recipient.code else None,
    }


def stat_lines(stats: Mapping[Area, AreaStats]) -> str:
    """One line for each area; `oldest` is null where it is empty."""
    return "".join(
        _encode(
            {
                "area": area.value,
                "recipients": held.recipients,
                "bytes": held.octets,
                "oldest": format_time(held.oldest) if held.oldest is not None else None,
            }
        )
        + "\n"
        for area, held in stats.items()
    )
