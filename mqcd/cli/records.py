"""The queue as JSON: one object a line, names and units as scripts rely on them."""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as quoted

from mqcd.cli.options import json_line
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import Area, AreaStats
from mqcd.queue import record


def recipient_line(text: str, in_flight: bool) -> str:
    """One recipient, from the text of its record. What there is not (yet) is null: no due time, no reply.

    Raises DecodeError. A million may be listed at once, so nothing is made of the record but this line.
    """
    each = record.fields(text)
    try:
        due, code = int(each.due), int(each.code)
        return (
            f'{{"spid":"{int(each.spid, 16):016X}","qid":{int(each.qid)},'
            f'"area":"{record.area_of(each.area).value}","inflight":{"true" if in_flight else "false"},'
            f'"sender":{quoted(each.sender)},"recipient":{quoted(each.address)},'
            f'"received":"{format_time(int(each.received))}",'
            f'"due":{_time(due) if due else "null"},'
            f'"attempts":{int(each.attempts)},"size":{int(each.size)},'
            f'"status":{quoted(each.status) if each.status else "null"},'
            f'"reply":{quoted(f"{code} {each.reply}".rstrip()) if code else "null"}}}\n'
        )
    except (ValueError, KeyError, OverflowError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error


def _time(ms: int) -> str:
    return f'"{format_time(ms)}"'


def stat_lines(stats: Mapping[Area, AreaStats]) -> str:
    """One line for each area; `oldest` is null where it is empty."""
    return "".join(
        json_line(
            {
                "area": area.value,
                "recipients": held.recipients,
                "bytes": held.octets,
                "oldest": format_time(held.oldest) if held.oldest is not None else None,
            }
        )
        for area, held in stats.items()
    )
