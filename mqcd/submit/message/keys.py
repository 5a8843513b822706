"""The idempotency key that a submission gives in its header: `X-mqcd-Key`. Pure.

The field is for this server alone, and is not sent on. It is looked for where Date and Message-ID are: in the
first MAX_SECTION octets.
"""

from __future__ import annotations

import re

from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.message.zoning import MAX_SECTION

MOST = 255
"""Characters of a key."""
_NAME = b"\nx-mqcd-key"
_FIELD = re.compile(rb"(?:\A|(?<=\n))x-mqcd-key[ \t]*:((?:[^\n]|\n[ \t])*)\n", re.IGNORECASE)
_KEY = re.compile(rb"[!-~]{1,%d}" % MOST)
_MALFORMED = DoorRefused(
    Reason.CONTENT,
    Reply(
        code=554,
        status="5.6.0",
        text=f"X-mqcd-Key takes one word of at most {MOST} printable ASCII characters, and comes once",
    ),
)


def take_key(content: bytes) -> tuple[str, bytes]:
    """The key that a message's header gives, "" = none, and the message without it.

    `content` begins with the whole header. Raises DoorRefused for what is no key.
    """
    end = content.find(b"\r\n\r\n", 0, MAX_SECTION)
    section = content[: end + 2] if end >= 0 else content[:MAX_SECTION]
    if _NAME not in b"\n" + section.lower() or content.startswith(b"\r\n"):
        return "", content
    found = list(_FIELD.finditer(section))
    if not found:
        # A longer name.
        return "", content
    value = found[0][1].strip()
    if len(found) > 1 or _KEY.fullmatch(value) is None:
        raise _MALFORMED
    return value.decode("ascii"), content[: found[0].start()] + content[found[0].end() :]
