"""Clients by their networks, and how often each has done something lately. Pure; bounded memory."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from functools import lru_cache

WINDOW_MS = 600_000
ENTRIES = 10_000


@lru_cache(maxsize=1024)
def client_network(client: str) -> str:
    """What counts as one client: an IPv4 address; of IPv6 a /64, the block that one client usually has; a
    name that is no address by itself."""
    if ":" not in client:
        return client
    try:
        return str(ipaddress.ip_network(f"{client}/64", strict=False))
    except ValueError:
        return client


@lru_cache(maxsize=1024)
def wide_network(client: str) -> str:
    """The network of many clients that one party may have: an IPv4 /24, an IPv6 /48; "" for no address."""
    if not client:
        return ""
    return str(ipaddress.ip_network(f"{client}/{48 if ':' in client else 24}", strict=False))


class RecentCounts:
    """Counts by name, in windows of WINDOW_MS that begin with the first. `now` is monotonic, in ms.

    At most ENTRIES names are remembered; the one that was counted longest ago is forgotten first.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By name: the count, and when its window began."""

    def add(self, name: str, now: int) -> None:
        """Count one more."""
        count, since = self._entries.get(name, (0, now))
        if now - since >= WINDOW_MS:
            count, since = 0, now
        self._entries[name] = (count + 1, since)
        self._entries.move_to_end(name)
        if len(self._entries) > ENTRIES:
            self._entries.popitem(last=False)

    def get(self, name: str, now: int) -> int:
        """How many in the window under way."""
        count, since = self._entries.get(name, (0, now))
        return count if now - since < WINDOW_MS else 0
