"""How a client is connected: without TLS, or with it, and what TLS says of both ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One connection's; replaced when TLS begins."""

    tls: str = ""
    """TLS version; "" without TLS."""
    binding: bytes = b""
    """The tls-server-end-point of our certificate (`auth.binding`); b"" where it has none."""
    identities: tuple[str, ...] = ()
    """Names of the client by its verified certificate; none without one."""


PLAIN = Channel()
"""A connection without TLS."""
