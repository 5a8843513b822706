"""Limits on client connections: over all doors, and per address. Pure.

Some connections are reserved for trusted clients, so that others cannot lock out a site's own mail. Trusted
clients have no limit per address. IPv6 clients count by /64, the block that one client usually has.
"""

from __future__ import annotations

import socket
from collections import Counter
from typing import Protocol

from mqcd.core.ports import Tokens
from mqcd.submit.policy import client_network


class Passing(Protocol):
    """Passes connections on to other server processes; see `net.balance`."""

    def passes(self, connection: socket.socket, connections: int) -> bool:
        """Pass a new connection on, if another process has fewer; returns whether it was passed."""

    def count(self, connections: int) -> None:
        """Report the number of connections open here."""

    def elsewhere(self) -> bool:
        """Whether mail is not taken here, but by another process."""


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
