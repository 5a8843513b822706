"""What is known of a client without a login: the user of this machine that it runs as. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """One client's."""

    user: str = ""
    """The user; "" = not known. It needs no login, and may send to any domain."""
    hold: str = ""
    """Its mail is held under this name until an operator releases it; "" = it is not."""
    claim: Callable[[int], Awaitable[None]] | None = None
    """Called with the SPID of its message before the queue is given it. What this raises, the message is not
    taken for."""


STRANGER = Caller()
"""A client of which nothing is known, as any over TCP."""
