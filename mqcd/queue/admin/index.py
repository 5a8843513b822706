"""`index.jsonl` beside exported messages: envelope and recipients of each, one message a line. Pure.

Names and units are those of `queue ls --json`: times RFC 3339 UTC, SPIDs 16 hex digits, no due time null.
Decoding raises only DecodeError; what it gives encodes to the same line again. How its queue kept the content
(`linked`) is not told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.core.events import format_time
from mqcd.core.model import Area, Body, Envelope, Origin, Recipient
from mqcd.core.spid import format_spid, parse_spid

NAME = "index.jsonl"
_WORDS = ("zone", "listener", "client", "user", "tls", "dsn")
_NUMBERS = ("qid", "attempts", "unknowns", "code")
_TEXTS = ("status", "remote", "reply", "dsn")


@dataclass(frozen=True, slots=True)
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
        file = _text(body["file"])
        envelope = Envelope(
            spid=parse_spid(_text(body["spid"])),
            sender=_address(body["sender"]) if body["sender"] else "",
            received=_time(body["received"]),
            origin=Origin(body["origin"]),
            body=Body(body["body"]),
            smtputf8=body["smtputf8"] is True,
            **{name: _text(body[name]) for name in _WORDS},
        )
        size = _number(body["size"])
        recipients = tuple(_recipient(envelope, size, fields) for fields in body["recipients"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecodeError(f"not a line of {NAME}: {error!r}") from error
    if not recipients or "/" in file or not file.endswith(".eml"):
        raise DecodeError(f"not a line of {NAME}: no recipient, or no name of a file beside it")
    return Entry(file, recipients)


def _recipient(envelope: Envelope, size: int, fields: dict[str, Any]) -> Recipient:
    numbers = {name: _number(fields[name]) for name in _NUMBERS}
    texts = {name: _text(fields[name]) for name in _TEXTS}
    return Recipient(
        envelope=envelope,
        size=size,
        qid=numbers["qid"],
        address=_address(fields["recipient"]),
        area=Area(fields["area"]),
        due=_time(fields["due"]) if fields["due"] is not None else 0,
        attempts=numbers["attempts"],
        unknowns=numbers["unknowns"],
        code=numbers["code"],
        status=texts["status"],
        remote=texts["remote"],
        reply=texts["reply"],
        dsn=texts["dsn"],
        # Exports of the first versions do not tell.
        warned=fields.get("warned", False) is True,
    )


def _address(value: object) -> str:
    text = _text(value)
    return text if text.lower() == "postmaster" else check_address(text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number")
    return value


def _time(value: object) -> int:
    at = datetime.fromisoformat(_text(value))
    if at.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return int(at.timestamp()) * 1000 + at.microsecond // 1000
