"""A connection to a next hop, as operators see it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkView:
    """One moment of it."""

    session: str
    """Its name in the log; "" before it stands."""
    state: str
    """connecting, working or idle."""
    since_ms: int
    """How long it stands, or is tried."""
    tls: str
    """TLS version; "" = none."""
    messages: int
    """Transactions so far."""
    destination: str
    zone: str
    remote_host: str
    remote_addr: str
    source_addr: str
