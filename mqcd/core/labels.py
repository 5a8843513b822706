"""Labels of a message: what selections and scheduling know of its header and its session. Pure.

`Envelope.labels` holds them as words `name=value`, one space between. In a value `%`, spaces and what is not
printable are written %XX of their UTF-8 octets, so that any value is one word.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote, unquote

_PLAIN = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
TENANT = "tenant"


def label(name: str, value: str) -> str:
    """The word for a label; "" for no value."""
    return f"{name}={quote(value, _PLAIN)}" if value else ""


@lru_cache(maxsize=1024)
def value_of(labels: str, name: str) -> str:
    """The value of a label; "" where there is none."""
    start = f"{name}="
    for word in labels.split(" "):
        if word.startswith(start):
            return unquote(word[len(start) :])
    return ""
