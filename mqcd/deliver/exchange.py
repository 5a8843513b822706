"""What the SMTP dialogue is told and what it tells: values, shared with the agents around it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mqcd.core.model import Phase
from mqcd.core.reply import Reply


class State(Enum):
    """What the caller has to do."""

    WAITING = "waiting"
    """Send what there is and hand in what arrives."""
    TLS = "tls"
    """Turn the connection to TLS, then call `tls_started`."""
    READY = "ready"
    """Begin a transaction, or quit. `outcomes` are those of the last one."""
    CONTENT = "content"
    """Send `content` and then `finish`."""
    ENDED = "ended"
    """Close. `outcomes` are those of the last transaction, `end` says why."""


class Result(Enum):
    """What became of one recipient."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one recipient, and who said so where."""

    result: Result
    reply: Reply
    phase: Phase
    possibly_delivered: bool = False
    """The final dot was sent and no reply that counts came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manners:
    """How we speak; see the client settings of the same names."""

    hello: str
    maxpipeline: int = 25
    """Commands sent ahead of their replies; 1 = none, 0 = no limit."""
    say_helo: bool = False
    fallback_helo: bool = False
    starttls: bool = True
    """Use TLS where it is offered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """One message to some of its recipients."""

    sender: str
    recipients: tuple[str, ...]
    size: int
    """Octets of the content."""
    eight: bool = False
    """The content is declared 8BITMIME and has, for all we know, 8-bit octets."""
    smtputf8: bool = False
    """The next hop must offer SMTPUTF8."""
    quit_after: bool = False
    """Send QUIT together with the final dot where pipelining is offered (RFC 2920, 3.1)."""
