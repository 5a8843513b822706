"""Labels of a message: what selections and scheduling know of its header and its session. Pure.

`Envelope.labels` holds them as words `name=value`, one space between. In a value `%`, spaces and what is not
printable are written %XX of their UTF-8 octets, so that any value is one word.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

_PLAIN = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
TENANT, MESSAGE_ID, LIST_ID, TAG, HOLD = "tenant", "message-id", "list-id", "tag", "hold"


def label(name: str, value: str) -> str:
    """The word for a label; "" for no value."""
    if not value:
        return ""
    # Nearly all values are words as they stand, and `quote` takes ten times as long.
    plain = value.isascii() and value.isprintable() and " " not in value and "%" not in value
    return f"{name}={value if plain else quote(value, _PLAIN)}"


def value_of(labels: str, name: str) -> str:
    """The value of a label; "" where there is none."""
    if name not in labels:
        return ""
    _, found, rest = f" {labels}".partition(f" {name}=")
    return unquote(rest.partition(" ")[0]) if found else ""
