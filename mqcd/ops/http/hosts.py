"""Which Host fields the ops listener answers: a defence against DNS rebinding. Pure.

A page in a browser may only read what its own host name serves, so its owner lets that name point at
127.0.0.1 or at a server inside the reader's network. The browser then sends that name in Host. An IP
address in Host cannot be such a name, and neither can the names that this server goes by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

_FIELD = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class KnownHosts:
    """Addresses, `localhost`, and these names in whichever case, each with any port."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset({"localhost", *map(_comparable, names)})

    def admits(self, field: str) -> bool:
        """Whether a Host field names this server."""
        match = _FIELD.fullmatch(field)
        if match is None:
            return False
        if match[1]:
            # RFC 3986, 3.2.2: nothing else stands in brackets.
            return ":" in match[1] and _is_address(match[1])
        return _comparable(match[2]) in self._names or _is_address(match[2])


def _comparable(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
