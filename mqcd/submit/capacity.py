"""Limits on client connections: over all doors, and per address. Pure.

Some connections are reserved for trusted clients, so that others cannot lock out a site's own mail. Trusted
clients have no limit per address. IPv6 clients count by /64, the block that one client usually has.
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from functools import lru_cache
from typing import Protocol


class Passing(Protocol):
    """Passes connections on to other server processes; see `net.balance`."""

    def passes(self, connection: socket.socket, connections: int) -> bool:
        """Pass a new connection on, if another process has fewer; returns whether it was passed."""

    def count(self, connections: int) -> None:
        """Report the number of connections open here."""


class Capacity:
    """The connections of all doors together."""

    __slots__ = ("_kept", "_total", "taken")

    def __init__(self, total: int, kept: int = 0) -> None:
        """`total` connections, `kept` of them for trusted clients alone."""
        self._total = total
        self._kept = kept
        self.taken = 0
        """Connections that are open."""

    def full(self, trusted: bool) -> bool:
        """Whether there is no room for one more."""
        return self.taken >= (self._total if trusted else self._total - self._kept)


class Peers:
    """The connections of one door by client."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def __getitem__(self, client: str) -> int:
        return self._count[_network(client)]

    def add(self, client: str) -> None:
        """One more."""
        self._count[_network(client)] += 1

    def remove(self, client: str) -> None:
        """One less."""
        network = _network(client)
        self._count[network] -= 1
        if not self._count[network]:
            del self._count[network]


@lru_cache(maxsize=1024)
def _network(client: str) -> str:
    if ":" not in client:
        return client
    return str(ipaddress.ip_network(f"{client}/64", strict=False))
