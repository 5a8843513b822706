"""Rules shared by all sessions of one door: settings, policy, and whether new mail is accepted. Pure.

Settings read: maxmsgsize, the switches of extensions, announcehost, smtpgreet.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from mqcd.config.settings import ServerSettings
from mqcd.core.reply import Reply
from mqcd.submit import replies
from mqcd.submit.auth.login import REQUIRED, Access
from mqcd.submit.channel import Channel
from mqcd.submit.parameters import DSN_PARAMETERS
from mqcd.submit.policy import Reason, RelayPolicy

Suppressed = Callable[[str], Reply | None]
"""The reply that refuses a recipient on a list of addresses that take no mail; None to take it."""


class Gate:
    """Whether new mail is accepted; shared by all sessions of a door."""

    __slots__ = ("closed", "suppressed")

    def __init__(self) -> None:
        self.closed: Reply | None = None
        """The reply to MAIL; None = open."""
        self.suppressed: Suppressed | None = None
        """Addresses that take no mail from any sender; None = there are none."""


class Rules:
    """Rules of all sessions of one door, computed once. `policy` may be exchanged at any time."""

    def __init__(
        self, settings: ServerSettings, policy: RelayPolicy, gate: Gate, access: Access | None = None
    ) -> None:
        """`access`: logins; None = nobody can log in."""
        self.settings = settings
        self.policy = policy
        self.gate = gate
        self.access = access
        self.host = settings.announcehost or "localhost"
        self.greeting = f"220 {self.host} {settings.smtpgreet or 'ESMTP mqcd'}\r\n".encode()
        self.helo = f"250 {self.host}\r\n".encode()
        self._ehlo: dict[Channel, bytes] = {}
        # RFC 6531, 3.1: a server that offers SMTPUTF8 has to offer 8BITMIME.
        self._utf8 = settings.ext_8bitmime and settings.ext_smtputf8
        offers: tuple[tuple[bool, Set[str]], ...] = (
            (settings.ext_dsn, DSN_PARAMETERS),
            (access is not None, {"AUTH"}),
            (settings.ext_size, {"SIZE"}),
            (settings.ext_8bitmime, {"BODY"}),
            (self._utf8, {"SMTPUTF8"}),
        )
        self.parameters = frozenset(each for switched_on, names in offers if switched_on for each in names)

    def ehlo(self, channel: Channel) -> bytes:
        """The reply to EHLO of a client that is connected so."""
        if channel.identities:
            # As many as there are clients with a certificate.
            return self._ehlo_reply(channel)
        octets = self._ehlo.get(channel)
        if octets is None:
            octets = self._ehlo[channel] = self._ehlo_reply(channel)
        return octets

    def mail_denied(self, user: str) -> tuple[Reason, Reply] | None:
        """Why no client, or none that has not logged in, may begin a message now."""
        if self.gate.closed is not None:
            return Reason.CLOSED, self.gate.closed
        if self.access is not None and self.access.mandatory and not user:
            return Reason.AUTH, REQUIRED
        return None

    def sender_denied(self, user: str, sender: str) -> bool:
        """Whether the user may not send with this reverse-path."""
        return bool(user) and self.access is not None and not self.access.senders.allows(user, sender)

    def recipient_denied(
        self, path: str, recipient: str, *, utf8: bool, may_relay: bool
    ) -> tuple[Reason, Reply] | None:
        """Why this recipient is not taken; `path` is what the client wrote, `utf8` what MAIL declared."""
        if not path:
            return Reason.RECIPIENT, replies.NULL_RECIPIENT
        if not path.isascii() and not utf8:
            return Reason.RECIPIENT, replies.NEEDS_UTF8
        denied = self.policy.refusal(path, may_relay)
        if denied is not None:
            return Reason.RELAY, denied
        suppressed = self.gate.suppressed
        listed = None if suppressed is None else suppressed(recipient)
        return None if listed is None else (Reason.SUPPRESSED, listed)

    def _ehlo_reply(self, channel: Channel) -> bytes:
        lines = [f"250-{line}" for line in (self.host, *self._keywords(channel))]
        lines[-1] = lines[-1].replace("250-", "250 ", 1)
        return ("\r\n".join(lines) + "\r\n").encode()

    def _keywords(self, channel: Channel) -> list[str]:
        settings = self.settings
        keywords = (
            (settings.ext_pipelining, "PIPELINING"),
            (settings.ext_size, f"SIZE {settings.maxmsgsize}"),
            (settings.ext_8bitmime, "8BITMIME"),
            (self._utf8, "SMTPUTF8"),
            (settings.ext_dsn, "DSN"),
            (settings.ext_chunking, "CHUNKING"),
            (True, "ENHANCEDSTATUSCODES"),
        )
        logins = [] if self.access is None else self.access.keywords(channel)
        return [*(keyword for switched_on, keyword in keywords if switched_on), *logins]
