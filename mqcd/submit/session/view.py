"""A client's session, as operators see it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    """One moment of it."""

    session: str
    """Its name in the log."""
    state: str
    """What it has come to, by the names of `submit.esmtp.states`, small."""
    since_ms: int
    """How long it lasts."""
    tls: str
    """TLS version; "" = none."""
    messages: int
    """Received so far."""
    listener: str
    client: str
    """IP address."""
    user: str
    """Authenticated, or the local user; "" = none."""
