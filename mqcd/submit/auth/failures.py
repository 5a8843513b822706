"""Which clients and users have failed to log in too often. Pure; bounded memory.

* A client (IPv6: a /64) may fail MOST_OF_CLIENT times in a row; of these one is forgiven in each
  WINDOW_MS / MOST_OF_CLIENT. So may a user MOST_OF_USER times, from anywhere; above that only clients that
  have logged in as that user before may try. So nobody can lock a user out, and many clients together cannot
  guess quickly.
* The failures of all processes count together (`core.ports.UsedRates`); who has logged in before, each
  process knows by itself, of ENTRIES clients and users.
"""

from __future__ import annotations

from collections import OrderedDict

from mqcd.core.clients import ENTRIES, WINDOW_MS, client_network
from mqcd.core.ports import UsedRates

MOST_OF_CLIENT = 10
MOST_OF_USER = 50
PLACES = 1 << 18
"""Clients and users whose failures are remembered: a /48 of IPv6 has 65,536 clients. Others share places."""
_NS = 1_000_000
"""In a ms."""
_WINDOW = WINDOW_MS * _NS


class Failures:
    """The failures at all listeners. `now` is monotonic, in ms."""

    def __init__(self, used: UsedRates) -> None:
        self._used = used
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()

    def client_blocked(self, client: str, now: int) -> bool:
        """Whether this client may not try now."""
        return self._is_full(_client(client), MOST_OF_CLIENT, now)

    def user_blocked(self, client: str, user: str, now: int) -> bool:
        """Whether this client may not try as this user now."""
        if not self._is_full(_user(user), MOST_OF_USER, now):
            return False
        return (client_network(client), user) not in self._good

    def failed(self, client: str, user: str, now: int, *, trusted: bool = False) -> None:
        """A login has failed; `trusted`: the client's own do not count, since a webmail has many users."""
        if not trusted:
            self._count(_client(client), MOST_OF_CLIENT, now)
        if user:
            self._count(_user(user), MOST_OF_USER, now)

    def succeeded(self, client: str, user: str) -> None:
        """A login was good: the client's failures stay, since one account must not allow guessing others."""
        pair = (client_network(client), user)
        self._good[pair] = None
        self._good.move_to_end(pair)
        if len(self._good) > ENTRIES:
            self._good.popitem(last=False)

    def _is_full(self, name: str, most: int, now: int) -> bool:
        return self._used.ahead(name, now * _NS) > _WINDOW - _WINDOW // most

    def _count(self, name: str, most: int, now: int) -> None:
        # Not above the limit: the block would last longer the longer somebody guesses.
        if not self._is_full(name, most, now):
            self._used.use(name, _WINDOW // most, now * _NS)


def _client(client: str) -> str:
    return f"client {client_network(client)}"


def _user(user: str) -> str:
    return f"user {user}"
