"""What the sink prints and indexes: JSON objects, one a line, and sentences for people. Pure.

A message: `event` "message" (printed only), `file` (or null), `sender` ("" = null), `recipients`,
`size` (octets), `at` (RFC 3339, UTC, ms), `helo`, and where the client gave any `dsn` and `recipient_dsn` (a
list with one text for each recipient). A refused recipient: `event` "refused",
`sender`, `recipient`, `reply`, `at`, `helo`.
"""

import json
from collections.abc import Mapping

from mqcd.core.events import format_time
from mqcd.sink.mail import Received, Refused


def to_line(fields: Mapping[str, object]) -> str:
    """One JSON object as a line, newline included; ASCII only, so that any terminal shows it."""
    return json.dumps(fields, separators=(",", ":")) + "\n"


def message_fields(message: Received, *, file: str | None) -> dict[str, object]:
    """A message, as the index and `--json` show it; `file` is where it was stored, if it was."""
    fields: dict[str, object] = {
        "file": file,
        "sender": message.sender,
        "recipients": message.recipients,
        "size": len(message.content),
        "at": format_time(message.at_ms),
        "helo": message.helo,
    }
    if message.dsn or message.recipient_dsn:
        fields |= {"dsn": message.dsn, "recipient_dsn": message.recipient_dsn}
    return fields


def refused_fields(refused: Refused) -> dict[str, object]:
    """A refused recipient, as `--json` shows it."""
    return {
        "sender": refused.sender,
        "recipient": refused.recipient,
        "reply": refused.reply,
        "at": format_time(refused.at_ms),
        "helo": refused.helo,
    }


def message_sentence(message: Received, *, file: str | None) -> str:
    """A message, for people, newline included."""
    recipients = " ".join(f"<{_shown(recipient)}>" for recipient in message.recipients)
    place = f" in {file}" if file else ""
    return (
        f"{format_time(message.at_ms)} took {len(message.content)} octets "
        f"from <{_shown(message.sender)}> to {recipients}{place}\n"
    )


def refused_sentence(refused: Refused) -> str:
    """A refused recipient, for people, newline included."""
    return (
        f"{format_time(refused.at_ms)} refused <{_shown(refused.recipient)}> "
        f"from <{_shown(refused.sender)}>: {refused.reply}\n"
    )


def _shown(address: str) -> str:
    """The address without what could drive a terminal: a client chose it."""
    return "".join(c if c.isprintable() else "?" for c in address)
