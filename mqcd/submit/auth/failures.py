"""Which clients and users have failed to log in too often. Pure; bounded memory.

* A client (IPv6: a /64) may fail MOST_OF_CLIENT times in a row; of these one is forgiven in each
  WINDOW_MS / MOST_OF_CLIENT. So may a user MOST_OF_USER times, from anywhere; above that only clients that
  have logged in as that user within KNOWN_MS may try. So nobody can lock a user out, and many clients
  together cannot guess quickly.
* Failures and good logins of all processes count together (`core.ports.UsedRates`), until the server ends.
"""

from __future__ import annotations

from mqcd.core.clients import WINDOW_MS, client_network
from mqcd.core.ports import UsedRates
from mqcd.core.units import DAY

MOST_OF_CLIENT = 10
MOST_OF_USER = 50
KNOWN_MS = 30 * DAY
"""How long the client of a good login is known."""
PLACES = 1 << 18
"""Clients and users that are remembered: a /48 of IPv6 has 65,536 clients. Others share places."""
_NS = 1_000_000
"""In a ms."""
_WINDOW = WINDOW_MS * _NS


class Failures:
    """The failures at all listeners. `now` is monotonic, in ms."""

    def __init__(self, used: UsedRates, known: UsedRates) -> None:
        """`used`: the failures; `known`: until when clients are known by their good logins."""
        self._used = used
        self._known = known

    def client_blocked(self, client: str, now: int) -> bool:
        """Whether this client may not try now."""
        return self._is_full(_client(client), MOST_OF_CLIENT, now)

    def user_blocked(self, client: str, user: str, now: int) -> bool:
        """Whether this client may not try as this user now."""
        if not self._is_full(_user(user), MOST_OF_USER, now):
            return False
        return not self._known.ahead(_pair(client, user), now * _NS)

    def failed(self, client: str, user: str, now: int, *, trusted: bool = False) -> None:
        """A login has failed; `trusted`: the client's own do not count, since a webmail has many users."""
        if not trusted:
            self._count(_client(client), MOST_OF_CLIENT, now)
        if user:
            self._count(_user(user), MOST_OF_USER, now)

    def succeeded(self, client: str, user: str, now: int) -> None:
        """A login was good: the client's failures stay, since one account must not allow guessing others."""
        name, known = _pair(client, user), KNOWN_MS * _NS
        ahead = self._known.ahead(name, now * _NS)
        if ahead < known - DAY * _NS:
            self._known.use(name, known - ahead, now * _NS)

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


def _pair(client: str, user: str) -> str:
    return f"{client_network(client)} {user}"
