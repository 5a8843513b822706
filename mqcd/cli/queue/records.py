"""The queue as JSON: one object a line, names and units as scripts rely on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from mqcd.cli.options import json_line
from mqcd.core.display import printable
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import Area, AreaStats
from mqcd.daemon.control.records import area_row
from mqcd.queue.format import record

COLUMNS = ("message", "area", "tries", "accepted", "due", "octets", "sender", "recipient", "reply")
"""Of a line for pipes."""


def recipient_line(text: str, in_flight: bool) -> str:
    """One recipient, from the text of its record. What there is not (yet) is null: no due time, no reply.

    Raises DecodeError. A million may be listed at once, so a record is decoded into nothing but this line.
    """
    spid, qid, area, due, size, attempts, _, code, status, _, reply, address, _, _, part = record.halves(text)
    try:
        shown, sender, received = _message(spid, part)
        due_ms, code_number = int(due), int(code)
        return (
            f'{{"spid":"{shown}","qid":{int(qid)},'
            f'"area":"{record.area_of(area).value}","inflight":{"true" if in_flight else "false"},'
            f'"sender":{sender},"recipient":{quoted(address)},'
            f'"received":"{received}",'
            f'"due":{_time(due_ms) if due_ms else "null"},'
            f'"attempts":{int(attempts)},"size":{int(size)},'
            f'"status":{quoted(status) if status else "null"},'
            f'"reply":{quoted(f"{code_number} {reply}".rstrip()) if code_number else "null"}}}\n'
        )
    except (ValueError, KeyError, OverflowError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error


def recipient_columns(text: str, in_flight: bool) -> str:
    """One recipient as a line for pipes: `COLUMNS`, with a tab between each two. Raises DecodeError."""
    spid, qid, area, due, octets, attempts, _, code, status, _, reply, address, _, _, part = record.halves(
        text
    )
    try:
        shown, sender, received = _message(spid, part)
        due_ms = int(due)
        columns = (
            f"{shown}/{int(qid)}",
            record.area_of(area).value,
            str(int(attempts)),
            received,
            "inflight" if in_flight else format_time(due_ms) if due_ms else "-",
            str(int(octets)),
            json.loads(sender) or "<>",
            address,
            " ".join(filter(None, (code, status, reply))) if code != "0" else "-",
        )
    except (ValueError, KeyError, OverflowError) as error:
        raise DecodeError(f"record line holds a field that cannot be: {text[:120]!r}") from error
    return "\t".join(map(printable, columns)) + "\n"


@lru_cache(maxsize=1024)
def _message(spid: str, part: str) -> tuple[str, str, str]:
    """What the lines of a message's recipients share: SPID, sender, time of acceptance."""
    each = record.shared_fields(part)
    return f"{int(spid, 16):016X}", quoted(each.sender), format_time(int(each.received))


def _time(ms: int) -> str:
    return f'"{format_time(ms)}"'


def stat_lines(stats: Mapping[Area, AreaStats]) -> str:
    """One line for each area; `oldest` is null where it is empty."""
    return "".join(json_line(area_row(area, held)) for area, held in stats.items())
