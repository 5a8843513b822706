"""Limits on client connections: over all doors, and per address. Pure: `socket` names a type alone.

Some connections are reserved for trusted clients, so that others cannot lock out a site's own mail, and one
network cannot have all of the others. Trusted clients have no limit per address. IPv6 clients count by /64,
the block that one client usually has.
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Protocol

from mqcd.core.clients import client_network, wide_network
from mqcd.core.ports import Tokens

LEAST = 10
"""Connections that a network may have while there is any room."""


class Passing(Protocol):
    """Passes connections on to other server processes; see `shared.balance`."""

    def passes(self, connection: socket.socket, connections: int) -> bool:
        """Pass a new connection on, if another process has fewer; returns whether it was passed."""

    def count(self, connections: int) -> None:
        """Report the number of connections open here."""

    def elsewhere(self) -> bool:
        """Whether mail is not taken here, but by another process."""


class Capacity:
    """The connections of all doors together.

    A network (IPv4 /24, IPv6 /48) may have as many as are left, and LEAST at any rate: alone it comes to half
    of all, and the more networks there are, the less each may have. Trusted clients have no such share.
    """

    __slots__ = ("_by_network", "_kept", "_total", "taken")

    def __init__(self, total: int, kept: int = 0) -> None:
        """`total` connections, `kept` of them for trusted clients alone."""
        self._total = total
        self._kept = kept
        self._by_network: Counter[str] = Counter()
        self.taken = 0
        """Connections that are open."""

    def full(self, client: str, trusted: bool) -> bool:
        """Whether there is no room for one more of this client."""
        if trusted:
            return self.taken >= self._total
        left = self._total - self._kept - self.taken
        return left <= 0 or self._by_network[wide_network(client)] >= max(left, LEAST)

    def add(self, client: str) -> None:
        """One more is open."""
        self.taken += 1
        self._by_network[wide_network(client)] += 1

    def remove(self, client: str) -> None:
        """One has closed."""
        self.taken -= 1
        network = wide_network(client)
        self._by_network[network] -= 1
        if not self._by_network[network]:
            del self._by_network[network]


class Peers:
    """The connections of one door by client; with several shards, those of all shards together."""

    __slots__ = ("_count", "_name", "_taken", "_tokens")

    def __init__(self, name: str = "", tokens: Tokens | None = None) -> None:
        """`name`: of the door; `tokens`: with several shards."""
        self._count: Counter[str] = Counter()
        self._name = name
        self._tokens = tokens
        self._taken: dict[str, list[int]] = {}
        """By client: tokens that its connections here hold."""

    def add(self, client: str, most: int) -> bool:
        """One more, unless `most` are open; 0 = no limit. Returns whether it counts."""
        network = client_network(client)
        if most and not self._has_room(network, most):
            return False
        self._count[network] += 1
        return True

    def remove(self, client: str) -> None:
        """One less."""
        network = client_network(client)
        self._count[network] -= 1
        taken = self._taken.get(network)
        if taken and self._tokens is not None and len(taken) > self._count[network]:
            self._tokens.give(taken.pop(), at_once=True)
        if not self._count[network]:
            del self._count[network]
            self._taken.pop(network, None)

    def _has_room(self, network: str, most: int) -> bool:
        if self._tokens is None:
            return self._count[network] < most
        token = self._tokens.take(f"client {self._name} {network}", most)
        if token is None:
            return False
        self._taken.setdefault(network, []).append(token)
        return True
