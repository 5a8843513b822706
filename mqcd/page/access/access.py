"""Who asks, and what they may do.

* A program shows its token in each request: `Authorization: Bearer TOKEN`.
* A browser logs in by a token once, and has a cookie from then on. Each of its requests for a change must
  carry the session's CSRF token, too.
* With `<page open="Y">` everybody may do everything; a browser still has a session, for other sites' pages
  could use it otherwise.

A client (IPv6: a /64) that shows wrong tokens too often gets 429 instead of 401. A right token is never
refused for that: 256 random bits cannot be guessed, and clients behind a proxy share an address.

Sessions are kept here in memory alone, so that a restart ends them all. One ends IDLE_MS after its last
request, LONGEST_MS after its login, and with its token.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from mqcd.core.clients import RecentCounts, client_network
from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.page.access.holders import Holders
from mqcd.page.access.tokens import Role, Token, digest_of
from mqcd.page.bounds import Refused

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
    """By the value of the browser's cookie; bounded. `now` is monotonic, in ms."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, digest: str, now: int) -> tuple[str, Session]:
        """A new one, and the value of its cookie."""
        key, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        session = Session(digest, csrf, now, now)
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


log = logging.getLogger(__name__)

MOST_FAILURES = 20
"""Wrong tokens of one client within `core.clients.WINDOW_MS`."""
SCHEME = "Bearer"


@value
class Caller:
    """Who asks."""

    author: str
    """For the server's log and events."""
    token: Token | None
    """None: none was needed."""
    csrf: str = ""
    """What a change must carry; "" = this is no browser's session."""

    def may(self, role: Role) -> bool:
        return self.token is None or self.token.may(role)


class Access:
    """The decisions. A refusal raises Refused."""

    def __init__(self, holders: Holders, clock: Clock, *, open_to_all: bool, secure: bool) -> None:
        """`open_to_all`: without tokens; `secure`: over TLS alone."""
        self._holders = holders
        self._sessions = Sessions()
        self._failures = RecentCounts()
        self._clock = clock
        self.open = open_to_all
        self.secure = secure
        self.cookie = "__Host-mqcd" if secure else "mqcd"
        """Its name."""

    def program(self, authorization: str, client: str) -> Caller:
        """The one that shows a token in a request."""
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != SCHEME.lower():
            raise Refused(401, f"Authorization must be {SCHEME} and a token")
        token = self._valid(secret.strip(), client)
        return Caller(author=f"token:{token.name}", token=token)

    def browser(self, cookies: Mapping[str, str]) -> Caller | None:
        """The one whose session this is; None without one."""
        session = self._sessions.find(cookies.get(self.cookie, ""), self._clock.monotonic())
        if session is None:
            return None
        return self._caller(session)

    def login(self, secret: str, client: str) -> str:
        """Begin a session; gives the value of its cookie."""
        return self._begin(self._valid(secret.strip(), client).digest)[0]

    def welcome(self) -> tuple[str, Caller]:
        """Begin a session where no token is needed; the value of its cookie, and who has it."""
        key, session = self._begin("")
        return key, Caller(author="page", token=None, csrf=session.csrf)

    def logout(self, cookies: Mapping[str, str]) -> None:
        """End the session, if there is one."""
        self._sessions.end(cookies.get(self.cookie, ""))

    def set_cookie(self, key: str) -> str:
        """The value of Set-Cookie; without a key the one that removes it."""
        age = "" if key else "; Max-Age=0"
        return f"{self.cookie}={key}; Path=/; HttpOnly; SameSite=Strict{'; Secure' * self.secure}{age}"

    def anybody(self) -> Caller:
        """A program that shows no token, where none is needed."""
        return Caller(author="page", token=None)

    def _begin(self, digest: str) -> tuple[str, Session]:
        return self._sessions.begin(digest, self._clock.monotonic())

    def _caller(self, session: Session) -> Caller | None:
        if not session.digest:
            return Caller(author="page", token=None, csrf=session.csrf) if self.open else None
        token = self._holders.find(session.digest)
        if token is None:
            return None
        return Caller(author=f"token:{token.name}", token=token, csrf=session.csrf)

    def _valid(self, secret: str, client: str) -> Token:
        token = self._holders.find(digest_of(secret))
        if token is not None:
            return token
        network, now = client_network(client), self._clock.monotonic()
        self._failures.add(network, now)
        failures = self._failures.get(network, now)
        if failures > MOST_FAILURES:
            if failures == MOST_FAILURES + 1:
                log.warning("more than %d wrong tokens from %s within minutes", MOST_FAILURES, client)
            raise Refused(429, "too many wrong tokens from this address; try again in ten minutes")
        raise Refused(401, "this token is not valid (any more); `mqcd token list` lists those that are")
