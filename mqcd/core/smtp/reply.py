"""SMTP replies (RFC 5321, 4.2) and enhanced status codes (RFC 3463), as values.

A `Reply` is one whole reply, however many lines it came in. Text that another server sent is cleaned
of control characters, so that it can stand in a log line, a record or a report; nothing else is lost.
"""

from __future__ import annotations

import re
from dataclasses import field

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.core.value import value

_STATUS = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)", re.ASCII)
_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])(.*))?", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]+")

MAX_REPLY_LINE = 2048
"""Octets of one reply line that are read; RFC 5321, 4.5.3.1.5 promises 512, servers send more."""


@value
class Reply:
    """One SMTP reply."""

    code: int
    """Three digits, 200 to 599."""
    status: str = ""
    """Enhanced status code such as "4.2.1", "" where the server sent none."""
    text: str = ""
    """What follows the codes; lines are joined by a space."""
    own: bool = field(default=False, compare=False)
    """This server's words about a next hop, which did not say so itself."""

    def __str__(self) -> str:
        return " ".join(part for part in (str(self.code), self.status, self.text) if part)

    @property
    def permanent(self) -> bool:
        """Whether it is a 5yz reply: trying again unchanged is useless (RFC 5321, 4.2.1)."""
        return self.code >= 500

    def encode(self) -> bytes:
        """The reply as one line for the wire, CRLF included."""
        return f"{self}\r\n".encode()


class Refused(MqcdError):
    """Mail is refused at the door with `reply`. Fault: the client (5yz) or the moment (4yz)."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(str(reply))
        self.reply = reply


def clean(text: str, limit: int) -> str:
    """`text` on one line, without control characters, at most `limit` characters."""
    if not text.isprintable():
        text = _CONTROLS.sub(" ", text)
    return text.strip()[:limit]


def parse_line(line: bytes) -> tuple[int, bool, str]:
    """One reply line without its CRLF: its code, whether it is the last line, and its text.

    Raises DecodeError for anything that is not a reply line (RFC 5321, 4.2).
    """
    match = _LINE.fullmatch(line)
    if match is None:
        shown = clean(line[:80].decode("utf-8", "replace"), 80)
        raise DecodeError(f"not an SMTP reply line: {shown!r}")
    code, mark, text = match.groups()
    return int(code), mark != b"-", (text or b"").decode("utf-8", "replace")


def join_lines(code: int, texts: list[str]) -> Reply:
    """The reply that lines of one `code` make; the enhanced status is taken off every line."""
    status = ""
    parts: list[str] = []
    for text in texts:
        match = _STATUS.match(text)
        if match is not None and match[1][0] == str(code)[0]:
            status = status or match[1]
            text = text[match.end() :]
        parts.append(text)
    return Reply(code=code, status=status, text=clean(" ".join(parts), 1000))
