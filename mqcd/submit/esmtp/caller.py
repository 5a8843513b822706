"""What is known of a client without a login: how it is connected, what TLS says of both ends, and the user of
this machine that it runs as. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from mqcd.core.value import value


@value
class Channel:
    """How one is connected; replaced when TLS begins."""

    tls: str = ""
    """TLS version; "" without TLS."""
    bindings: Mapping[str, bytes] = field(default_factory=dict)
    """The channel bindings by their types (`auth.binding`); none without TLS."""
    identities: tuple[str, ...] = ()
    """Names of the client by its verified certificate; none without one."""


PLAIN = Channel()
"""A connection without TLS."""


@value
class Caller:
    """Who one is."""

    user: str = ""
    """The user; "" = not known. It needs no login, and may send to any domain."""
    hold: str = ""
    """Its mail is held under this name until an operator releases it; "" = it is not."""
    claim: Callable[[int], Awaitable[None]] | None = None
    """Called with the SPID of its message before the queue is given it. Raises Refused, with the reply to a
    message that is not taken."""


STRANGER = Caller()
"""A client of which nothing is known, as any over TCP."""
