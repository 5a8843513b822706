"""The Message-ID of a message, for logs and events (RFC 5322, 3.6.4). Pure.

Only the beginning of the content is looked at, once, and what is found is cut and made printable: a stranger
has written it.
"""

from __future__ import annotations

import re

from mqcd.core.display import printable

MAX_OCTETS = 250
"""Of a Message-ID that is kept."""
_LOOKED_AT = 16 << 10
_FIELD = re.compile(rb"\r\nmessage-id[ \t]*:(?:[ \t]|\r\n[ \t])*([^\r\n]+)", re.IGNORECASE)
_FIRST = re.compile(_FIELD.pattern.removeprefix(rb"\r\n"), re.IGNORECASE)


def message_id(content: bytes) -> str:
    """The field's body in the header section that `content` begins with; "" when it has none."""
    if content.startswith(b"\r\n"):
        return ""
    end = content.find(b"\r\n\r\n", 0, _LOOKED_AT)
    end = end if end >= 0 else min(len(content), _LOOKED_AT)
    found = _FIELD.search(content, 0, end) or _FIRST.match(content, 0, end)
    if found is None:
        return ""
    return printable(found[1].strip()[:MAX_OCTETS].decode("utf-8", "replace"))
