"""The values that the SMTP client takes and returns, shared with the connection around it. Pure."""

from __future__ import annotations

from enum import Enum
from typing import assert_never

from mqcd.config.settings import TlsPolicy
from mqcd.core.model import Phase
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value
from mqcd.deliver.smtp.auth import Login


class Step(Enum):
    """A command whose reply is awaited, and its phase."""

    GREETING = "greeting", Phase.GREETING
    EHLO = "ehlo", Phase.EHLO
    HELO = "helo", Phase.EHLO
    STARTTLS = "starttls", Phase.TLS
    AUTH = "auth", Phase.AUTH
    RSET = "rset", Phase.MAIL
    MAIL = "mail", Phase.MAIL
    RCPT = "rcpt", Phase.RCPT
    DATA = "data", Phase.DATA
    CHUNK = "chunk", Phase.DATA
    END = "end", Phase.DOT
    QUIT = "quit", Phase.DOT

    def __init__(self, _command: str, phase: Phase) -> None:
        self.phase = phase

    __hash__ = object.__hash__
    """Looked up for each reply: hashed by identity, faster than Enum's own hash."""


class Result(Enum):
    """What became of one recipient."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"

    @property
    def puts_off(self) -> bool:
        """Whether another attempt is to follow: the server took no decision on the recipient."""
        match self:
            case Result.DEFERRED:
                return True
            case Result.DELIVERED | Result.BOUNCED:
                return False
            case _:
                assert_never(self)


@value
class Outcome:
    """The outcome of one recipient, with its reply and phase."""

    result: Result
    reply: Reply
    phase: Phase
    possibly_delivered: bool = False
    """The end of the content was sent and no reply that counts came."""


@value
class Options:
    """Options of the client; see the client settings of the same names."""

    hello: str
    maxpipeline: int = 25
    """Commands sent ahead of their replies; 0 or 1 = none."""
    say_helo: bool = False
    fallback_helo: bool = False
    chunking: bool = True
    """Send the content by BDAT where that is offered (RFC 3030)."""
    lmtp: bool = False
    """Speak LMTP (RFC 2033): a reply for each recipient follows the content."""
    relay: bool = False
    """The next hop is a configured one: that it wants a login, or TLS, is for this server's operator to
    mend."""
    tls: TlsPolicy = TlsPolicy.MAY
    implicit_tls: bool = False
    """The connection begins with TLS, there is no STARTTLS (RFC 8314, 3)."""
    checked: bool = False
    """Where there is TLS the certificate must be valid and name the host, for any value of `tls`."""
    trust: str = ""
    """File of the certificates that others are checked by; "" = the system's."""
    certificate: str = ""
    """File of the client certificate, and its key if `key` is ""; "" = none is shown."""
    key: str = ""
    login: Login | None = None
    """The credentials; None = no login."""


@value
class Transaction:
    """One message to some of its recipients."""

    sender: str
    recipients: tuple[str, ...]
    size: int
    """Octets of the content."""
    eight: bool = False
    """The content is declared 8BITMIME and may have 8-bit octets."""
    smtputf8: bool = False
    """The next hop must offer SMTPUTF8."""
    dsn: str = ""
    """RET and ENVID as they go with MAIL (RFC 3461), or ""."""
    priority: int = 0
    """MT-PRIORITY, which goes where it is offered (RFC 6710)."""
    recipient_dsn: tuple[str, ...] = ()
    """NOTIFY and ORCPT as they go with each RCPT; empty when no recipient has any."""
    quit_after: bool = False
    """Send QUIT together with the end of the content where pipelining is offered (RFC 2920, 3.1)."""
