"""Labels of a message: what selections and scheduling know of its header and its session. Pure.

`Envelope.labels` holds them as words `name=value`, one space between. In a value `%`, spaces and what is not
printable are written %XX of their UTF-8 octets, so that any value is one word. Strangers choose values:
one that is longer than `MAX_VALUE` as it is written ends behind a whole character, so that a record has room.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_PLAIN = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
MAX_VALUE = 512
"""Octets of a value as it is written."""
TENANT, MESSAGE_ID, LIST_ID, TAG, HOLD = "tenant", "message-id", "list-id", "tag", "hold"


def label(name: str, value: str) -> str:
    """The word for a label; "" for no value."""
    if not value:
        return ""
    # Nearly all values are words as they stand, and `quote` takes ten times as long.
    plain = value.isascii() and value.isprintable() and " " not in value and "%" not in value
    written = value if plain else quote(value, _PLAIN)
    return f"{name}={written if len(written) <= MAX_VALUE else _cut(written)}"


def _cut(written: str) -> str:
    start = written[:MAX_VALUE]
    if "%" in start[-2:]:
        start = start[: start.rindex("%")]
    return quote(unquote(start, errors="ignore"), _PLAIN)


def value_of(labels: str, name: str) -> str:
    """The value of a label; "" where there is none."""
    if name not in labels:
        return ""
    _, found, rest = f" {labels}".partition(f" {name}=")
    return unquote(rest.partition(" ")[0]) if found else ""
