"""The header fields that a submission server adds where they are missing: Date and Message-ID. Pure.

RFC 6409, 8.2 and 8.3 allow it for mail of users' programs; a relay changes nothing in another's message. A
header section beyond MAX_SECTION octets gets nothing: a field that is there could be a second one.

Settings read: submission (by the caller).
"""

from __future__ import annotations

from mqcd.submit.message.zoning import MAX_SECTION, fields_of

_NAMES = frozenset({"date", "message-id"})


def missing_fields(head: bytes, *, date: str, message_id: str) -> bytes:
    """The fields to put before a message that begins with `head`; `message_id` without angle brackets."""
    if len(head) > MAX_SECTION and b"\r\n\r\n" not in head[:MAX_SECTION] and not head.startswith(b"\r\n"):
        return b""
    found = fields_of(head, _NAMES)
    added = "" if "date" in found else f"Date: {date}\r\n"
    if "message-id" not in found:
        added += f"Message-ID: <{message_id}>\r\n"
    return added.encode()
