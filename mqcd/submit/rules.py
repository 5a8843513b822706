"""Rules shared by all sessions of one door: settings, policy, and whether new mail is accepted. Pure.

Settings read: maxmsgsize, extPIPELINING, extSIZE, ext8BITMIME, announcehost, smtpgreet.
"""

from __future__ import annotations

from collections.abc import Callable

from mqcd.config.settings import ServerSettings
from mqcd.core.reply import Reply
from mqcd.submit.parameters import DSN_PARAMETERS
from mqcd.submit.policy import RelayPolicy

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

    def __init__(self, settings: ServerSettings, policy: RelayPolicy, gate: Gate) -> None:
        self.settings = settings
        self.policy = policy
        self.gate = gate
        self.host = settings.announcehost or "localhost"
        self.greeting = f"220 {self.host} {settings.smtpgreet or 'ESMTP mqcd'}\r\n".encode()
        self.helo = f"250 {self.host}\r\n".encode()
        keywords = self._keywords()
        lines = [f"250-{line}" for line in (self.host, *keywords)]
        lines[-1] = lines[-1].replace("250-", "250 ", 1)
        self.ehlo = ("\r\n".join(lines) + "\r\n").encode()
        self.parameters = (
            DSN_PARAMETERS
            | ({"SIZE"} if settings.ext_size else set())
            | ({"BODY", "SMTPUTF8"} if settings.ext_8bitmime else set())
        )

    def _keywords(self) -> list[str]:
        settings = self.settings
        keywords = (
            (settings.ext_pipelining, "PIPELINING"),
            (settings.ext_size, f"SIZE {settings.maxmsgsize}"),
            (settings.ext_8bitmime, "8BITMIME"),
            # RFC 6531, 3.1: a server that offers SMTPUTF8 has to offer 8BITMIME.
            (settings.ext_8bitmime, "SMTPUTF8"),
            (True, "DSN"),
            (True, "ENHANCEDSTATUSCODES"),
        )
        return [keyword for switched_on, keyword in keywords if switched_on]
