"""What a program puts into a queue, and what the queue gives to the program's relay."""

from __future__ import annotations

import email.message
import email.policy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.core.model import Envelope
from mqcd.core.ports import Content
from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

_CHUNK = 1 << 16


@value
class Draft:
    """A message on its way into the queue."""

    sender: str
    """"" is the null sender: nothing is ever reported to it."""
    recipients: Sequence[str]
    content: bytes
    """RFC 5322 octets with CRLF."""


@value
class Mail:
    """A message, and recipients of it that are due."""

    envelope: Envelope
    recipients: Sequence[str]
    attempts: int
    """Attempts that the first of them has had."""
    size: int
    """Octets of the content in the queue."""
    open_content: Callable[[], Awaitable[Content]]
    headers: bytes = b""
    """Header fields, each with its CRLF, that stand before the content when it is relayed."""

    @property
    def sender(self) -> str:
        """The reverse-path; "" is the null one."""
        return self.envelope.sender

    async def chunks(self) -> AsyncIterator[bytes]:
        """The octets, in pieces. Raises ContentUnavailable."""
        if self.headers:
            yield self.headers
        content = await self.open_content()
        try:
            while chunk := await content.read(_CHUNK):
                yield chunk
        finally:
            content.close()

    async def read(self) -> bytes:
        """All octets. Raises ContentUnavailable."""
        return b"".join([chunk async for chunk in self.chunks()])


class Relay(Protocol):
    """Any async callable that tries to hand a message on.

    Its Reply counts for all recipients; a sequence has one for each, in their order. 2yz is delivered, 4yz is
    tried again later, 5yz fails for good. An exception counts as 451, and so does what is no reply.
    """

    async def __call__(self, mail: Mail) -> Reply | Sequence[Reply]: ...


class Backoff(Protocol):
    """When to try again, in seconds from now, at most 7 days; None = never: the message has failed.

    One that raises counts as 15 minutes.
    """

    def __call__(self, envelope: Envelope, attempts: int) -> float | None: ...


EnqueuePolicy = Callable[[Draft], Awaitable[Sequence[Draft] | None]]
"""Sees a message before it is queued: None = as it is, else what to queue in its place (none of it: []).
Raises `core.smtp.reply.Refused` to refuse it."""
RelayPolicy = Callable[[Mail], Awaitable[Mail | Reply | None]]
"""Sees a message before it is relayed: None = as it is, else what to relay in its place, or a reply that
counts as the relay's."""


def as_octets(content: bytes | str | email.message.Message) -> bytes:
    """A message as RFC 5322 octets with CRLF. Raises ValueError for NUL or a bare CR."""
    if isinstance(content, email.message.Message):
        content = content.as_bytes(policy=email.policy.SMTP)
    octets = content.encode() if isinstance(content, str) else content
    octets = octets.replace(b"\r\n", b"\n")
    if b"\r" in octets or b"\0" in octets:
        raise ValueError("a message may have no NUL and no bare CR")
    return octets.replace(b"\n", b"\r\n")


def checked(draft: Draft) -> Draft:
    """Raises ValueError for a bad address, or no recipient at all."""
    check_parties(draft.sender, draft.recipients)
    return draft


def check_parties(sender: str, recipients: Sequence[str]) -> None:
    """Raises ValueError for a bad address, or no recipient at all."""
    if not recipients:
        raise ValueError("a message needs a recipient")
    try:
        for address in (*recipients, *([sender] if sender else [])):
            check_address(address)
    except DecodeError as error:
        raise ValueError(str(error)) from error
