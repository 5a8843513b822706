"""A recipient, and how much mail there is, as the objects that commands and pages list. Pure."""

from __future__ import annotations

from mqcd.core.events import format_time
from mqcd.core.model import Area, AreaStats, Recipient
from mqcd.core.queueing.spid import format_spid


def recipient_row(recipient: Recipient, in_flight: bool) -> dict[str, object]:
    """A recipient as `queue ls --json` lists it."""
    each, envelope = recipient, recipient.envelope
    return {
        "spid": format_spid(envelope.spid),
        "qid": each.qid,
        "area": each.area.value,
        "inflight": in_flight,
        "sender": envelope.sender,
        "recipient": each.address,
        "received": format_time(envelope.received),
        "due": format_time(each.due) if each.due else None,
        "attempts": each.attempts,
        "size": each.size,
        "status": each.status or None,
        "reply": f"{each.code} {each.reply}".rstrip() if each.code else None,
    }


def stats_row(stats: AreaStats) -> dict[str, object]:
    """How much something is."""
    oldest = format_time(stats.oldest) if stats.oldest is not None else None
    return {"recipients": stats.recipients, "bytes": stats.octets, "oldest": oldest}


def area_row(area: Area, stats: AreaStats) -> dict[str, object]:
    """What an area holds."""
    return {"area": area.value, **stats_row(stats)}
