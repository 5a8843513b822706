"""`index.jsonl` beside exported messages: envelope and recipients of each, one message a line. Pure.

Names and units are those of `queue ls --json`: times RFC 3339 UTC, SPIDs 16 hex digits, no due time null.
Decoding raises only DecodeError; what it gives encodes to the same line again. It takes no more than a queue
of mqcd can have: times, numbers and lengths in bounds, no control characters, each QID once. How its queue
kept the content (`linked`) is not in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

from mqcd.core.address import MAX_ADDRESS, check_address
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import MAX_LAST_WORDS, Area, Body, Envelope, Origin, Recipient
from mqcd.core.queueing.spid import format_spid, parse_spid
from mqcd.core.value import value

NAME = "index.jsonl"
_DSN = 700
"""Octets of DSN parameters, of which those of RCPT are longer: ORCPT alone has 500 (RFC 3461, 4.2)."""
_WORDS = {"zone": 64, "listener": 64, "client": 64, "user": 512, "tls": 16, "dsn": _DSN}
_TEXTS = {"status": 16, "remote": 1100, "reply": MAX_LAST_WORDS, "dsn": _DSN}
"""The longest of each, octets: a record line of them all is shorter than `record.MAX_LINE`."""
_LABELS = 4096
_COUNTS = range(1 << 31)
_PRIORITIES = range(-9, 10)
_NUMBERS: dict[str, Container[int]] = {
    "qid": range(1, 1 << 31),
    "attempts": _COUNTS,
    "unknowns": _COUNTS,
    "code": frozenset((0, *range(200, 600))),
}
_TIMES = range(1 << 43)
_SIZES = range(1 << 63)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@value(kw_only=False)
class Entry:
    """One line."""

    file: str
    """Name of the content's file, in the same directory."""
    recipients: tuple[Recipient, ...]
    """All of one message, at least one."""


def encode(file: str, recipients: Sequence[Recipient]) -> str:
    """One line, line feed included."""
    envelope = recipients[0].envelope
    body: dict[str, object] = {
        "file": file,
        "spid": format_spid(envelope.spid),
        "sender": envelope.sender,
        "received": format_time(envelope.received),
        "origin": envelope.origin.value,
        "body": envelope.body.value,
        "smtputf8": envelope.smtputf8,
        **{name: getattr(envelope, name) for name in _WORDS},
        **({"release": format_time(envelope.release)} if envelope.release else {}),
        **({"priority": envelope.priority} if envelope.priority else {}),
        **({"labels": envelope.labels} if envelope.labels else {}),
        "size": recipients[0].size,
        "recipients": [_recipient_fields(each) for each in recipients],
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")) + "\n"


def _recipient_fields(recipient: Recipient) -> dict[str, object]:
    return {
        "recipient": recipient.address,
        "area": recipient.area.value,
        "due": format_time(recipient.due) if recipient.due else None,
        **{name: getattr(recipient, name) for name in (*_NUMBERS, *_TEXTS)},
        "warned": recipient.warned,
    }


def decode(line: str) -> Entry:
    """The entry that a line holds. Raises DecodeError."""
    try:
        body: dict[str, Any] = json.loads(line)
        file = _text(body, "file", 255)
        words: dict[str, Any] = {name: _text(body, name, most) for name, most in _WORDS.items()}
        envelope = Envelope(
            spid=parse_spid(_text(body, "spid", 16)),
            sender=_address(body, "sender") if body["sender"] else "",
            received=_time(body, "received"),
            origin=Origin(_text(body, "origin", 16)),
            body=Body(_text(body, "body", 16)),
            smtputf8=body["smtputf8"] is True,
            release=_time(body, "release") if "release" in body else 0,
            priority=_number(body, "priority", _PRIORITIES) if "priority" in body else 0,
            labels=_text(body, "labels", _LABELS) if "labels" in body else "",
            **words,
        )
        size = _number(body, "size", _SIZES)
        recipients = tuple(_recipient(envelope, size, fields) for fields in body["recipients"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DecodeError(f"not a line of {NAME}: {error!r:.200}") from error
    if not recipients or "/" in file or not file.endswith(".eml"):
        raise DecodeError(f"not a line of {NAME}: no recipient, or no name of a file beside it")
    if len({each.qid for each in recipients}) < len(recipients):
        raise DecodeError(f"not a line of {NAME}: two recipients have the same qid")
    return Entry(file, recipients)


def is_foreign(line: str) -> bool:
    """Whether a line comes from an index of another program: it names no message of a queue."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return not (isinstance(body, dict) and "spid" in body)


def _recipient(envelope: Envelope, size: int, fields: dict[str, Any]) -> Recipient:
    numbers: dict[str, Any] = {name: _number(fields, name, allowed) for name, allowed in _NUMBERS.items()}
    texts: dict[str, Any] = {name: _text(fields, name, most) for name, most in _TEXTS.items()}
    return Recipient(
        envelope=envelope,
        size=size,
        address=_address(fields, "recipient"),
        area=Area(_text(fields, "area", 16)),
        due=_time(fields, "due") if fields["due"] is not None else 0,
        # Exports of the first versions do not have it.
        warned=fields.get("warned", False) is True,
        **numbers,
        **texts,
    )


def _address(fields: dict[str, Any], name: str) -> str:
    text = _text(fields, name, MAX_ADDRESS)
    return text if text.lower() == "postmaster" else check_address(text)


def _text(fields: dict[str, Any], name: str, most: int) -> str:
    """A text of at most `most` octets, on one line."""
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    if _CONTROLS.search(value):
        raise ValueError(f"{name} has a control character")
    try:
        octets = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not Unicode: it has half a character") from error
    if octets > most:
        raise ValueError(f"{name} is longer than {most} octets")
    return value


def _number(fields: dict[str, Any], name: str, allowed: Container[int]) -> int:
    value = fields[name]
    if type(value) is not int or value not in allowed:
        raise ValueError(f"{name} cannot be {value!r:.40}")
    return value


def _time(fields: dict[str, Any], name: str) -> int:
    text = _text(fields, name, 40)
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{name} {text!r} has no time zone")
    ms = int(at.timestamp()) * 1000 + at.microsecond // 1000
    if ms not in _TIMES:
        raise ValueError(f"{name} cannot be {text!r}")
    return ms
