"""Why an attempt ends as it does, and what is said then. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class End(StrEnum):
    """What becomes of a recipient; also the verb of the event."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cause:
    """One way in which an attempt can end."""

    name: str
    end: End
    code: int
    status: str
    kind: str
    """The event's `class`."""
    phase: str
    texts: tuple[str, ...]
    """Replies, `%s` formats over a mapping; as they stand within a JSON string."""
    suggests: str
    """The class that a postmaster would file these words under."""
    begins: bool = True
    """Whether the transaction had begun, so that there is an `attempted`."""
    waits_ms: int = 0
    """Longer than usual by this much."""
    doubt: bool = False
    """Whether the next hop may have taken it all the same."""


SENT = Cause(
    name="sent", end=End.DELIVERED, code=250, status="2.0.0", kind="success", phase="dot", suggests="",
    texts=("Ok: queued as %(id)s", "%(id)s Message accepted for delivery", "Queued mail for delivery"),
)  # fmt: skip
GREYLISTED = Cause(
    name="greylisted", end=End.DEFERRED, code=450, status="4.7.1", kind="policy", phase="rcpt",
    suggests="greylisted",
    texts=("<%(to)s>: Recipient address rejected: Greylisted, see http://grey.example/%(id)s.html",
           "Greylisting in effect, please come back later"),
)  # fmt: skip
RATE = Cause(
    name="rate", end=End.DEFERRED, code=421, status="4.7.28", kind="policy", phase="mail",
    suggests="throttled",
    texts=("%(ip)s sends faster than our rate limit allows; try again later",
           "Too many messages from %(ip)s, slow down"),
)  # fmt: skip
CONNECTIONS = Cause(
    name="connections", end=End.DEFERRED, code=421, status="4.7.0", kind="policy", phase="greeting",
    suggests="throttled", begins=False,
    texts=("Too many connections from your host %(ip)s, try again later",
           "%(host)s: too many concurrent sessions from [%(ip)s]"),
)  # fmt: skip
FULL = Cause(
    name="full", end=End.DEFERRED, code=452, status="4.2.2", kind="mailbox", phase="rcpt",
    suggests="mailbox-full",
    texts=("<%(to)s>: mailbox is full", "The recipient's mailbox is over quota, session %(id)s"),
)  # fmt: skip
DEAD = Cause(
    name="dead", end=End.BOUNCED, code=550, status="5.1.1", kind="address", phase="rcpt",
    suggests="no-such-user",
    texts=("<%(to)s>: Recipient address rejected: User unknown in virtual mailbox table",
           "The mailbox \\\"%(to)s\\\" does not exist here, session %(id)s", "No such user"),
)  # fmt: skip
POLICY = Cause(
    name="policy", end=End.BOUNCED, code=554, status="5.7.1", kind="policy", phase="data",
    suggests="blocked",
    texts=("Message blocked: poor reputation of %(ip)s", "Client host [%(ip)s] blocked using bl.example.net"),
)  # fmt: skip
REFUSED = Cause(
    name="refused", end=End.DEFERRED, code=451, status="4.4.1", kind="network", phase="connect",
    suggests="connection", begins=False,
    texts=("no connection to %(host)s [%(addr)s]: Connection refused",),
)  # fmt: skip
TIMEOUT = Cause(
    name="timeout", end=End.DEFERRED, code=451, status="4.4.2", kind="network", phase="greeting",
    suggests="connection", begins=False, waits_ms=60_000, texts=("timeout in phase greeting",),
)  # fmt: skip
CLOSED = Cause(
    name="closed", end=End.DEFERRED, code=421, status="4.3.2", kind="system", phase="ehlo", suggests="other",
    begins=False, texts=("%(host)s: system shutting down",),
)  # fmt: skip
LOST = Cause(
    name="lost", end=End.DEFERRED, code=451, status="4.4.2", kind="network", phase="dot",
    suggests="connection", doubt=True, texts=("connection reset after the final dot",),
)  # fmt: skip
CAUSES = (SENT, GREYLISTED, RATE, CONNECTIONS, FULL, DEAD, POLICY, REFUSED, TIMEOUT, CLOSED, LOST)
OUTAGES = {cause.name: cause for cause in (REFUSED, TIMEOUT, CLOSED)}
