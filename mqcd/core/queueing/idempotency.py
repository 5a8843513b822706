"""Idempotency keys: what makes two submissions one. Pure.

A client that does not know whether its message was accepted sends it again under the same key. The key's
name is a hash of the key and of its owner (a user, or a client's network), so that nobody can suppress the
mail of another. The digest is one of envelope and content: a key that comes with another message is refused.
It finds mistakes, so checksums do: a sender of two messages with one digest would only lose the second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2s
from typing import NamedTuple
from zlib import crc32

from mqcd.core.model import Key, Recipient, Submission
from mqcd.core.smtp.reply import Refused, Reply

NAME_OCTETS = 16
DIGEST_OCTETS = 8
OTHER_MESSAGE = Reply(
    code=554,
    status="5.5.4",
    text="This key was used for another message: send that again, or use another key",
)


class Used(NamedTuple):
    """What is remembered of a key."""

    spid: int
    """The message that was accepted under it."""
    digest: bytes
    at: int
    """When that was, seconds since the Unix epoch."""


def name_of(owner: str, key: str) -> bytes:
    """The name of a key: `owner` says whose it is, such as `user:alice`."""
    return blake2s(f"{owner}\0{key}".encode("utf-8", "surrogateescape"), digest_size=NAME_OCTETS).digest()


def key_of(
    owner: str,
    key: str,
    sender: str,
    recipients: Sequence[str],
    content: bytes,
    parameters: Iterable[str] = (),
) -> Key:
    """The key of a message. `parameters`: what else of the envelope changes what becomes of the message."""
    envelope = "\n".join((sender, *recipients, "", *parameters)).encode("utf-8", "surrogateescape")
    digest = (crc32(envelope) << 32 | crc32(content)).to_bytes(DIGEST_OCTETS, "big")
    return Key(name_of(owner, key), digest)


def read_on(key: Key, octets: bytes) -> None:
    """The message of this key has more content."""
    content = crc32(octets, int.from_bytes(key.digest[4:], "big"))
    key.digest = key.digest[:4] + content.to_bytes(4, "big")


async def repeated(submission: Submission, used: Used) -> Sequence[Recipient]:
    """The recipients of the message that came first; reads what is still to come of this one.

    Raises Refused when it is another message, and what its content raises.
    """
    key, content = submission.key, submission.content
    size = len(content) if isinstance(content, bytes) else await _drained(content)
    if key is None or key.digest != used.digest:
        raise Refused(OTHER_MESSAGE)
    return recipients_of(submission, used.spid, size)


def recipients_of(submission: Submission, spid: int, size: int) -> Sequence[Recipient]:
    """The recipients of a message as they were when it was accepted under this SPID."""
    envelope = replace(submission.envelope, spid=spid)
    dsn = submission.recipient_dsn or [""] * len(submission.recipients)
    return [
        Recipient(envelope=envelope, size=size, qid=qid, address=address, dsn=each)
        for qid, (address, each) in enumerate(zip(submission.recipients, dsn, strict=True), 1)
    ]


async def _drained(content: AsyncIterator[bytes]) -> int:
    size = 0
    async for chunk in content:
        size += len(chunk)
    return size
