"""Checks of a memory store on a submission before it accepts any of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mqcd.core.model import Submission
from mqcd.core.spid import format_spid, is_several


def check_submission(submission: Submission) -> None:
    """Raises ValueError for one that contradicts itself or its SPID."""
    count = len(submission.recipients)
    if not count:
        raise ValueError("a message needs a recipient")
    if submission.recipient_dsn and len(submission.recipient_dsn) != count:
        raise ValueError("a message has other numbers of recipients and of their DSN parameters")
    if is_several(submission.envelope.spid) is not (count > 1):
        spid = format_spid(submission.envelope.spid)
        raise ValueError(f"SPID {spid} was reserved for another number of recipients than {count}")


async def gather(content: bytes | AsyncIterator[bytes]) -> bytes:
    """All of a content. Raises what its iterator raises."""
    if isinstance(content, bytes):
        return content
    return b"".join([chunk async for chunk in content])
