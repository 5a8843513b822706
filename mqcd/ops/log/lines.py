"""One event as one line of text, logfmt or JSON, which no field's content can break or forge.

What could end a line or steer a terminal (C0 and C1 controls, Unicode line ends, lone surrogates) is
written as an escape. Numbers and values of one word stand bare, all others in quotes; names are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

Fields = Mapping[str, str | int | bool]
"""Name to value, in the order in which they are written."""
Render = Callable[[Fields], str]

_PLAIN = re.compile(r'[^\s"=\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+')
_HARMFUL = re.compile(r'[\x00-\x1f"\\\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def logfmt(fields: Fields) -> str:
    """`name=value` pairs with a space between; no line end."""
    return " ".join(
        [f"{name}={value if type(value) is int else text(value)}" for name, value in fields.items()]
    )


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def as_json(fields: Fields) -> str:
    """One JSON object in ASCII; no line end."""
    return _encode(fields)


# Most values of a busy log are among the last thousand: verbs, hosts, replies, senders.
@lru_cache(maxsize=1024)
def text(value: str | int) -> str:
    """A value as logfmt has it: bare, or in quotes."""
    if not isinstance(value, str):
        return "true" if value else "false"
    if _PLAIN.fullmatch(value):
        return value
    return f'"{_HARMFUL.sub(_escape, value)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
