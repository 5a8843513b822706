"""How a client is connected: without TLS, or with it, and what TLS says of both ends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One connection's; replaced when TLS begins."""

    tls: str = ""
    """TLS version; "" without TLS."""
    bindings: Mapping[str, bytes] = field(default_factory=dict)
    """The channel bindings by their types (`auth.binding`); none without TLS."""
    identities: tuple[str, ...] = ()
    """Names of the client by its verified certificate; none without one."""


PLAIN = Channel()
"""A connection without TLS."""
