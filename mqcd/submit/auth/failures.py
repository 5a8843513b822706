"""Which clients and users have failed to log in too often. Pure; bounded memory.

* A client (IPv6: a /64) with MOST_OF_CLIENT failures within WINDOW_MS may not try for as long.
* A user with MOST_OF_USER failures within WINDOW_MS from anywhere: only clients that have logged in as that
  user before may try. So nobody can lock a user out, and many clients together cannot guess quickly.
* Of each at most ENTRIES are remembered; the one that failed longest ago is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict

from mqcd.core.clients import ENTRIES, RecentCounts, client_network

MOST_OF_CLIENT = 10
MOST_OF_USER = 50


class Failures:
    """The failures at all listeners of one process. `now` is monotonic, in ms."""

    def __init__(self) -> None:
        self._clients = RecentCounts()
        self._users = RecentCounts()
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()

    def client_blocked(self, client: str, now: int) -> bool:
        """Whether this client may not try now."""
        return self._clients.get(client_network(client), now) >= MOST_OF_CLIENT

    def user_blocked(self, client: str, user: str, now: int) -> bool:
        """Whether this client may not try as this user now."""
        if self._users.get(user, now) < MOST_OF_USER:
            return False
        return (client_network(client), user) not in self._good

    def failed(self, client: str, user: str, now: int, *, trusted: bool = False) -> None:
        """A login has failed; `trusted`: the client's own do not count, since a webmail has many users."""
        if not trusted:
            self._clients.add(client_network(client), now)
        if user:
            self._users.add(user, now)

    def succeeded(self, client: str, user: str) -> None:
        """A login was good: the client's failures stay, since one account must not allow guessing others."""
        pair = (client_network(client), user)
        self._good[pair] = None
        self._good.move_to_end(pair)
        if len(self._good) > ENTRIES:
            self._good.popitem(last=False)
