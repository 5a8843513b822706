"""Sessions of browsers: kept here in memory alone, so that a restart ends them all. Bounded.

A session ends IDLE_MS after its last request, LONGEST_MS after its login, and with its token.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

IDLE_MS = 30 * 60_000
LONGEST_MS = 12 * 3_600_000
MOST = 1_000
"""With more the one that was used longest ago ends."""


@dataclass(slots=True)
class Session:
    """One browser that has logged in."""

    digest: str
    """Of the token it has logged in by; "" = none was needed."""
    csrf: str
    """What each of its requests for a change must carry, which no other site's page can know."""
    begun: int
    used: int


class Sessions:
    """By the value of the browser's cookie. `now` is monotonic, in ms."""

    def __init__(self, random: Callable[[], str] = lambda: secrets.token_urlsafe(32)) -> None:
        self._random = random
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, digest: str, now: int) -> tuple[str, Session]:
        """A new one, and the value of its cookie."""
        key = self._random()
        session = Session(digest, self._random(), now, now)
        self._sessions[key] = session
        if len(self._sessions) > MOST:
            self._sessions.popitem(last=False)
        return key, session

    def find(self, key: str, now: int) -> Session | None:
        """The session of a cookie; its use is noted."""
        session = self._sessions.get(key)
        if session is None:
            return None
        if now - session.used >= IDLE_MS or now - session.begun >= LONGEST_MS:
            del self._sessions[key]
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session

    def end(self, key: str) -> None:
        """Log out. An unknown one is harmless."""
        self._sessions.pop(key, None)
