"""What is recorded of a message's header: Message-ID, List-ID and X-mqcd-Tag. Pure.

RFC 5322, 3.6.4, and RFC 2919. Only the beginning of the content is looked at, once, and what is found is cut
and made printable: a stranger has written it. The first counts where a field stands there twice.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mqcd.core.display import printable
from mqcd.core.labels import HOLD, LIST_ID, MESSAGE_ID, TAG, TENANT, label

MAX_OCTETS = 250
"""Of a field that is kept."""
LOOKED_AT = 16 << 10
"""Octets of a content that are looked at."""
_FIELD = re.compile(
    rb"\r\n(message-id|list-id|x-mqcd-tag)[ \t]*:(?:[ \t]|\r\n[ \t])*([^\r\n]+)", re.IGNORECASE
)
_FIRST = re.compile(_FIELD.pattern.removeprefix(rb"\r\n"), re.IGNORECASE)
_BETWEEN = re.compile("<([^<>]+)>")


class Marks(NamedTuple):
    """The bodies of the fields; "" for one that is not there."""

    message_id: str = ""
    list_id: str = ""
    tag: str = ""

    def labels(self, tenant: str = "", hold: str = "") -> str:
        """The labels of a message, see `core.labels`; `hold`: the name that it is held under.

        Of names in angle brackets without these."""
        values = (
            (TENANT, tenant),
            (MESSAGE_ID, self.message_id and _bare(self.message_id)),
            (LIST_ID, self.list_id and _bare(self.list_id)),
            (TAG, self.tag),
            (HOLD, hold),
        )
        return " ".join([label(name, value) for name, value in values if value])


_NONE = Marks()


def marks_of(content: bytes) -> Marks:
    """The fields in the header section that `content` begins with."""
    if content.startswith(b"\r\n"):
        return _NONE
    end = content.find(b"\r\n\r\n", 0, LOOKED_AT)
    end = end if end >= 0 else min(len(content), LOOKED_AT)
    found = _FIELD.findall(content, 0, end)
    if (first := _FIRST.match(content, 0, end)) is not None:
        found.insert(0, first.groups())
    if not found:
        return _NONE
    values: dict[bytes, bytes] = {}
    for name, value in found:
        values.setdefault(name.lower(), value)
    return Marks(_text(values, b"message-id"), _text(values, b"list-id"), _text(values, b"x-mqcd-tag"))


def _text(values: dict[bytes, bytes], name: bytes) -> str:
    value = values.get(name)
    return printable(value.strip()[:MAX_OCTETS].decode("utf-8", "replace")) if value is not None else ""


def _bare(text: str) -> str:
    found = _BETWEEN.search(text)
    return found[1] if found is not None else text
