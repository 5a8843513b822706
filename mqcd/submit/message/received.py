"""The Received header that the server prepends (RFC 5321, 4.4; RFC 3848; RFC 6531, 4.3). Pure.

    Received: from HELO ([192.0.2.1])
            by ANNOUNCEHOST (mqcd) with ESMTP id SPID
            for <recipient>; Fri, 20 Nov 2026 16:47:05 +0000

`for` stands only in a message with one recipient: naming one of several would disclose it to the others.
The client's own name is reduced to characters that a host name or address literal may have. `with` names a
protocol between hosts, so mail of a program on this machine has none.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime

from mqcd.core.queueing.spid import format_spid

_NOT_HOST = re.compile(r"[^A-Za-z0-9.:_\[\]\-]")
_MAX_HELO = 255


def clean_helo(name: str) -> str:
    """`name` with "?" for characters that no host name or address literal may have."""
    return _NOT_HOST.sub("?", name[:_MAX_HELO])


def protocol(
    esmtp: bool, smtputf8: bool, tls: bool = False, user: bool = False, *, lmtp: bool = False
) -> str:
    """The `with` keyword: SMTP, ESMTP, ESMTPSA, UTF8SMTPS, LMTP and so on."""
    if lmtp:
        name = "UTF8LMTP" if smtputf8 else "LMTP"
    elif smtputf8:
        name = "UTF8SMTP"
    elif esmtp or tls or user:
        name = "ESMTP"
    else:
        return "SMTP"
    return f"{name}{'S' if tls else ''}{'A' if user else ''}"


def date_text(second: int) -> str:
    """Date and time of a Unix time in seconds, in UTC (RFC 5322, 3.3)."""
    return format_datetime(datetime.fromtimestamp(second, UTC))


class DateCache:
    """`date_text`, made once a second."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, ms: int) -> str:
        """The date of a Unix time in ms."""
        second = ms // 1000
        if second != self._second:
            self._second = second
            self._text = date_text(second)
        return self._text


def local_header(*, user: str, host: str, spid: int, recipient: str, date: str) -> bytes:
    """The field of a message by a user of this machine; there is no client to name."""
    target = f"\r\n\tfor <{recipient}>; {date}\r\n" if recipient else f";\r\n\t{date}\r\n"
    shown = f"{host} (mqcd, from user {clean_helo(user)})"
    return f"Received: by {shown}\r\n\tid {format_spid(spid)}{target}".encode()


def received_header(
    *, helo: str, client: str, host: str, protocol: str, spid: int, recipient: str, date: str
) -> bytes:
    """The header field, CRLF at its end. `recipient` is "" when there are several; `helo` is clean."""
    literal = f"IPv6:{client}" if ":" in client else client
    target = f"\r\n\tfor <{recipient}>; {date}\r\n" if recipient else f";\r\n\t{date}\r\n"
    text = (
        f"Received: from {helo} ([{literal}])\r\n"
        f"\tby {host} (mqcd) with {protocol} id {format_spid(spid)}{target}"
    )
    return text.encode()
