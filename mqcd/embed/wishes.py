"""What an embedded queue is asked to be, and the parts that make one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mqcd.core.model import Recipient
from mqcd.core.ports import QueueStore
from mqcd.core.selecting.selection import Selection
from mqcd.core.value import value
from mqcd.embed.message import Backoff, Mail, Relay, RelayPolicy

if TYPE_CHECKING:
    from mqcd.config.settings import Settings
    from mqcd.stores.backend import Backend


@value
class SmtpRelay:
    """Delivery by mqcd's own SMTP client: lanes, kept connections, pipelining, TLS."""

    host: str = ""
    """The next hop of all mail; "" = by MX."""
    port: int = 25
    lmtp: bool = False
    """Speak LMTP with it (RFC 2033)."""


BounceFactory = Callable[[Mail, Sequence[Recipient]], Awaitable[bytes]]
"""Makes the report on recipients that failed for good (`Recipient.code`, `status`, `reply` say why), for the
sender: RFC 5322 octets with CRLF."""


@value
class Wishes:
    """What a queue is asked to be."""

    store: str | Path | Backend
    relay: Relay | SmtpRelay | None
    backoff: Backoff | None
    bounce: BounceFactory | None
    reports: bool
    policies: Sequence[RelayPolicy]
    at_once: int
    hostname: str
    settings: Settings | None


class Parts(Protocol):
    """An open queue's store, and what delivers from it."""

    @property
    def store(self) -> QueueStore: ...

    async def open(self) -> None:
        """Open the store, and start delivery once what the last run left is there."""

    async def retry(self, selection: Selection) -> int:
        """See `Queue.retry`."""

    async def close(self) -> None:
        """Stop delivery, and release the store."""
