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

_FIELD = re.compile(rb"\nx-mqcd-key[ \t]*:([^\n]*+(?:\n[ \t][^\n]*+)*+)", re.IGNORECASE)
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
    # With a line end before the first field, so that it is found like the others.
    section = b"\n" + content[: end + 2 if end >= 0 else MAX_SECTION]
    field = _FIELD.search(section)
    if field is None or section.startswith(b"\n\r\n"):
        return "", content
    key = field[1].strip()
    if _KEY.fullmatch(key) is None or _FIELD.search(section, field.end()) is not None:
        raise DoorRefused(Reason.CONTENT, _MALFORMED)
    return key.decode("ascii"), content[: field.start()] + content[field.end() :]
