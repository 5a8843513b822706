"""What the sink tells of: a message that it took and a recipient that it refused. Pure values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message that the sink took, as it came."""

    sender: str
    """The reverse-path; "" = the null sender."""
    recipients: tuple[str, ...]
    """The forward-paths that were accepted, in the order of their RCPT commands."""
    content: bytes
    """The message, dot-stuffing undone, otherwise octet for octet as received."""
    helo: str
    """What the client called itself at EHLO or HELO."""
    peer: str
    """The client's address and port, `192.0.2.1:4711` or `[2001:db8::1]:4711`."""
    at_ms: int
    """When the final dot was read: Unix time in ms, by the clock given to the sink."""
    body: str = ""
    """The BODY parameter (RFC 6152) in upper case; "" = none given."""
    smtputf8: bool = False
    """The SMTPUTF8 parameter (RFC 6531) was given."""
    tls: bool = False
    """It came after STARTTLS."""
    chunked: bool = False
    """It came by BDAT (RFC 3030)."""
    dsn: str = ""
    """RET and ENVID (RFC 3461) as given with MAIL."""
    recipient_dsn: tuple[str, ...] = ()
    """NOTIFY and ORCPT as given with each RCPT; empty = with none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A recipient that a rule refused at RCPT."""

    sender: str
    recipient: str
    reply: str
    """The reply line, code first, without CRLF."""
    helo: str
    peer: str
    at_ms: int
    """When RCPT was read: Unix time in ms."""
