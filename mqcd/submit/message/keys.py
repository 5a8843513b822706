"""The idempotency key that a submission gives in its header: `X-mqcd-Key`. Pure.

The field is for this server alone, and is not sent on. It is looked for where Date and Message-ID are: in the
first MAX_SECTION octets.
"""

from __future__ import annotations

import re

from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.parameters import MAX_KEY
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.message.zoning import MAX_SECTION

_NAME = b"\nx-mqcd-key"
_USUAL = re.compile(rb"x-mqcd-key:[ \t]*([!-~]{1,%d})\r\n(?![ \t])" % MAX_KEY, re.IGNORECASE)
_KEY = re.compile(rb"[!-~]{1,%d}" % MAX_KEY)
_MALFORMED = Reply(
    code=554,
    status="5.6.0",
    text=f"X-mqcd-Key takes one word of at most {MAX_KEY} printable ASCII characters, and comes once",
)


def take_key(content: bytes) -> tuple[str, bytes]:
    """The key that a message's header gives, "" = none, and the message without it.

    `content` begins with the whole header. Raises DoorRefused for what is no key.
    """
    end = content.find(b"\r\n\r\n", 0, MAX_SECTION)
    section = content[: end + 2] if end >= 0 else content[:MAX_SECTION]
    lower = b"\n" + section.lower()
    start = lower.find(_NAME)
    if start < 0 or content.startswith(b"\r\n"):
        return "", content
    usual = _USUAL.match(section, start)
    if usual is not None and lower.find(_NAME, start + 1) < 0:
        return usual[1].decode("ascii"), content[:start] + content[usual.end() :]
    return _take_unusual(content, section, lower)


def _take_unusual(content: bytes, section: bytes, lower: bytes) -> tuple[str, bytes]:
    """The same where the field is folded, comes twice, is malformed, or has a longer name."""
    found: list[tuple[int, int, bytes]] = []
    start = lower.find(_NAME)
    while start >= 0:
        stop = _end_of_field(section, start)
        name, colon, value = section[start:stop].partition(b":")
        if colon and len(name.rstrip(b" \t")) == len(_NAME) - 1:
            found.append((start, stop, value.strip()))
        start = lower.find(_NAME, stop)
    if not found:
        # A longer name.
        return "", content
    start, stop, key = found[0]
    if len(found) > 1 or _KEY.fullmatch(key) is None:
        raise DoorRefused(Reason.CONTENT, _MALFORMED)
    return key.decode("ascii"), content[:start] + content[stop:]


def _end_of_field(section: bytes, start: int) -> int:
    """Where the field ends that begins at `start`, with its line end and its folded lines."""
    while (end := section.find(b"\n", start) + 1) and section[end : end + 1] in (b" ", b"\t"):
        start = end
    return end or len(section)
