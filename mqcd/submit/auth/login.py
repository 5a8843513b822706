"""One session's logins: from the AUTH command to the reply that ends it (RFC 4954). Pure.

`begin` and `take` return a `Turn`: the event of `esmtp.states` that it is, and the reply. Where the event is
CHECK, the caller compares `checking` with the user's hash, and passes the result to `checked`. An AUTH that
does not begin is refused by a Reply.

Failures: a wrong login gets 535, the MOST_IN_SESSION-th of a connection 421, as does every login of a client
that has failed too often (`auth.failures`); of a user that has, 454.

Settings read: authtypes, authtypes_ssl.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from mqcd.config.settings import AuthType
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.submit.auth.credentials import Credentials
from mqcd.submit.auth.exchange import Exchange, challenge_line
from mqcd.submit.auth.failures import Failures
from mqcd.submit.auth.mechanisms import MECHANISMS, Entry
from mqcd.submit.auth.senders import Senders
from mqcd.submit.auth.steps import Cause, Challenge, Check, Context, Failure, Step, Success
from mqcd.submit.esmtp.caller import PLAIN, Channel
from mqcd.submit.esmtp.states import Event

MOST_IN_SESSION = 3

_NO_ARGUMENT = Reply(code=501, status="5.5.4", text="Syntax: AUTH mechanism [initial-response]")
_AGAIN = Reply(code=503, status="5.5.1", text="Already authenticated")
_UNKNOWN = Reply(code=504, status="5.5.4", text="Authentication mechanism is not offered")
_NEEDS_TLS = Reply(code=538, status="5.7.11", text="Encryption is required for this mechanism")
_OK = Reply(code=235, status="2.7.0", text="Authentication succeeded")
_WRONG = Reply(code=535, status="5.7.8", text="Authentication credentials invalid")
_MALFORMED = Reply(code=501, status="5.5.2", text="Malformed authentication response")
_CANCELLED = Reply(code=501, status="5.7.0", text="Authentication cancelled")
_TOO_LONG = Reply(code=500, status="5.5.6", text="Authentication exchange line is too long")
_BUSY = Reply(code=454, status="4.7.0", text="Too many logins at once, try again later")
_USER_BLOCKED = Reply(code=454, status="4.7.0", text="Too many failed logins of this user, try again later")
_TOO_MANY = Reply(code=421, status="4.7.0", text="Too many failed logins, closing")
REQUIRED = Reply(code=530, status="5.7.0", text="Authentication required")


class Book(Protocol):
    """The users of a listener."""

    def __contains__(self, name: str) -> bool:
        """Whether there is such a user."""

    def find(self, name: str) -> Credentials:
        """What a login as `name` is compared with, also where there is no such user."""


@value
class Access:
    """Logins of one listener: settings, users, and what all listeners know of failures."""

    types: Collection[AuthType]
    tls_types: Collection[AuthType]
    """Those of them that are offered over TLS alone."""
    mandatory: bool
    compat: bool
    """List the mechanisms in the form "AUTH=" too."""
    book: Book
    failures: Failures
    senders: Senders
    host: str
    now: Callable[[], int]
    """Monotonic ms."""
    nonce: Callable[[], str]
    """Printable random text, new at each call."""

    def offered(self, channel: Channel) -> list[str]:
        """The mechanisms that a client of this channel may use, in their order."""
        return [name for name, entry in MECHANISMS.items() if self._offers(entry, channel)]

    def keywords(self, channel: Channel) -> list[str]:
        """The lines of EHLO."""
        offered = " ".join(self.offered(channel))
        if not offered:
            return []
        return [f"AUTH {offered}", f"AUTH={offered}"] if self.compat else [f"AUTH {offered}"]

    def needs_tls(self, entry: Entry, channel: Channel) -> bool:
        """Whether the mechanism is one that TLS alone is missing for."""
        return entry.type in self.types and entry.type in self.tls_types and not channel.tls

    def _offers(self, entry: Entry, channel: Channel) -> bool:
        return (
            entry.type in self.types
            and not self.needs_tls(entry, channel)
            and (bool(channel.bindings) or not entry.binds)
            and (bool(channel.identities) or not entry.certificate)
        )


@value(kw_only=False)
class Turn:
    """What a line of an exchange makes of the session."""

    event: Event
    """CHALLENGE, CHECK, IDENTIFIED, DENIED or CLOSE."""
    reply: Reply | None = None
    """None with CHALLENGE and CHECK."""
    octets: bytes = b""
    """The reply to CHALLENGE."""
    bad: bool = False
    """Whether the line counts as a bad command."""
    claimed: str = ""
    """The user that the login failed for; "" also for a name that is no user's."""


class Login:
    """The logins of one session."""

    __slots__ = ("_access", "_client", "_exchange", "_failed", "_trusted", "channel", "checking", "user")

    def __init__(self, access: Access, client: str, *, trusted: bool) -> None:
        """`trusted`: failures are not the client's own, see `Failures.failed`."""
        self._access = access
        self._client = client
        self._trusted = trusted
        self._exchange: Exchange | None = None
        self._failed = 0
        self.channel = PLAIN
        self.checking: Check | None = None
        """The password that is to be compared, while CHECK lasts."""
        self.user = ""
        """Who has logged in; "" = nobody."""

    def begin(self, argument: str) -> Turn | Reply:
        """The AUTH command; a Reply refuses it before an exchange begins."""
        name, _, initial = argument.partition(" ")
        entry = MECHANISMS.get(name.upper())
        if refused := self._refusal(name, entry):
            return refused
        if entry is None:
            return _UNKNOWN
        if self._access.failures.client_blocked(self._client, self._access.now()):
            return Turn(Event.CLOSE, _TOO_MANY)
        self._exchange = Exchange(entry, self._context())
        return self._turn(self._exchange.begin(initial.strip(" ").encode()))

    def _refusal(self, name: str, entry: Entry | None) -> Reply | None:
        if not name:
            return _NO_ARGUMENT
        if self.user:
            return _AGAIN
        if entry is not None and self._access.needs_tls(entry, self.channel):
            return _NEEDS_TLS
        return None if name.upper() in self._access.offered(self.channel) else _UNKNOWN

    def take(self, line: bytes) -> Turn:
        """A response line, without its CRLF."""
        if self._exchange is None:
            return Turn(Event.DENIED, _MALFORMED, bad=True)
        return self._turn(self._exchange.take(line))

    def take_bad_line(self) -> Turn:
        """A response line that is too long, or does not end in CRLF."""
        self._exchange = None
        return Turn(Event.DENIED, _TOO_LONG, bad=True)

    @property
    def hash(self) -> str:
        """What the password in `checking` is to be compared with."""
        return self._access.book.find("" if self.checking is None else self.checking.user).hash

    def checked(self, good: bool | None) -> Turn:
        """Whether the password that was to be checked fits; None = it could not be checked now."""
        check, self.checking = self.checking, None
        if check is None or good is None:
            # Counted: or one connection of a flood would ask again as fast as it is answered.
            return Turn(Event.DENIED, _BUSY, bad=True)
        good = good and self._blocked(check.user) is None
        return self._identified(check.user) if good else self._denied(check.user)

    def _context(self) -> Context:
        access, channel = self._access, self.channel
        return Context(
            find=self._find,
            nonce=access.nonce,
            host=access.host,
            bindings=channel.bindings,
            plus_offered="SCRAM-SHA-256-PLUS" in access.offered(channel),
            identities=tuple(each for each in channel.identities if each in access.book),
        )

    def _find(self, user: str) -> Credentials:
        """What a login as this user is compared with: nothing fits while it is blocked, so no mechanism shows
        which password would."""
        return self._access.book.find(user if self._blocked(user) is None else "")

    def _turn(self, step: Step) -> Turn:
        match step:
            case Challenge():
                return Turn(Event.CHALLENGE, octets=challenge_line(step))
            case Check():
                if blocked := self._blocked(step.user):
                    return blocked
                self.checking = step
                return Turn(Event.CHECK)
            case Success():
                return self._identified(step.user)
            case Failure(Cause.CREDENTIALS):
                return self._denied(step.user)
            case Failure(Cause.CANCELLED):
                return Turn(Event.DENIED, _CANCELLED)
            case Failure():
                return Turn(Event.DENIED, _MALFORMED, bad=True)

    def _blocked(self, user: str) -> Turn | None:
        """The refusal where failures of the client, or of the user, forbid this login now."""
        failures, now = self._access.failures, self._access.now()
        if failures.client_blocked(self._client, now):
            return self._refused(Event.CLOSE, _TOO_MANY, user)
        if failures.user_blocked(self._client, user, now):
            return self._refused(Event.DENIED, _USER_BLOCKED, user)
        return None

    def _identified(self, user: str) -> Turn:
        access = self._access
        if user not in access.book:
            # Removed while the password was compared.
            return self._denied(user)
        access.failures.succeeded(self._client, user, access.now())
        self.user = user
        return Turn(Event.IDENTIFIED, _OK)

    def _denied(self, user: str) -> Turn:
        access = self._access
        # As to a right password: the replies to attempts that were under way must not differ.
        if blocked := self._blocked(user):
            return blocked
        access.failures.failed(self._client, user, access.now(), trusted=self._trusted)
        self._failed += 1
        if self._failed >= MOST_IN_SESSION:
            return self._refused(Event.CLOSE, _TOO_MANY, user)
        return self._refused(Event.DENIED, _WRONG, user)

    def _refused(self, event: Event, reply: Reply, user: str) -> Turn:
        return Turn(event, reply, claimed=user if user in self._access.book else "")
