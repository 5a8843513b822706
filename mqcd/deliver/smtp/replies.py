"""Parses server octets into replies (RFC 5321, 4.2). Pure.

Guarantees: the same octets give the same replies however they are split; memory is bounded by the
limits below. Fails only with DecodeError: what is not a reply, or one that does not end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.reply import MAX_REPLY_LINE, Reply, join_lines, parse_line

MAX_REPLY_LINES = 200
"""Lines of one reply; the longest real ones (EHLO) have about 20."""
_MARKS = (b" ", b"-")


@dataclass(slots=True, eq=False, repr=False)
class RawReply:
    """One reply, its text still octets: most replies are only looked at for their code."""

    code: int
    """Three digits, 200 to 599."""
    lines: list[bytes]
    """Text of each line, code and mark taken off."""

    def reply(self) -> Reply:
        return join_lines(self.code, [line.decode("utf-8", "replace") for line in self.lines])


@dataclass(slots=True, eq=False, repr=False)
class ReplyReader:
    """Octets in, replies out. A bare LF ends a line too, for servers that cannot do better."""

    _buffer: bytes = b""
    _at: int = 0
    _code: int = 0
    _lines: list[bytes] = field(default_factory=list)

    @property
    def pending(self) -> bool:
        """Whether octets wait that are not part of a returned reply."""
        return self._at < len(self._buffer) or bool(self._lines)

    def feed(self, data: bytes) -> None:
        rest = self._buffer[self._at :] if self._at < len(self._buffer) else b""
        self._buffer = rest + data if rest else data
        self._at = 0

    def next(self) -> RawReply | None:
        """The next whole reply; None until more octets come. Raises DecodeError."""
        buffer = self._buffer
        while True:
            start = self._at
            end = buffer.find(b"\n", start)
            if (end if end >= 0 else len(buffer)) - start > MAX_REPLY_LINE:
                raise DecodeError(f"reply line of more than {MAX_REPLY_LINE} octets")
            if end < 0:
                return None
            line = buffer[start:end].rstrip(b"\r")
            self._at = end + 1
            digits, mark = line[:3], line[3:4]
            # What nearly every line looks like; `parse_line` is the judge of all others.
            if mark in _MARKS and digits.isdigit() and b"200" <= digits < b"600":
                code, last, text = int(digits), mark == b" ", line[4:]
            else:
                code, last, shown = parse_line(line)
                text = shown.encode()
            if last and not self._lines:
                return RawReply(code, [text])
            lines = self._collect(code, text, last)
            if lines is not None:
                return RawReply(code, lines)

    def _collect(self, code: int, text: bytes, last: bool) -> list[bytes] | None:
        """One line of a reply that has several; all of them once it is the last. Raises DecodeError."""
        if self._lines and code != self._code:
            raise DecodeError(f"reply that begins with {self._code} and goes on with {code}")
        if len(self._lines) == MAX_REPLY_LINES:
            raise DecodeError(f"reply of more than {MAX_REPLY_LINES} lines")
        self._code = code
        self._lines.append(text)
        if not last:
            return None
        lines, self._lines = self._lines, []
        return lines
