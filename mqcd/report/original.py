"""The part of the failed message that a report returns, made fit to lie inside another message. Pure.

Only whole lines are returned. What no transport may carry is put right and nothing else is touched:
bare line ends become CRLF, NULs go, lines beyond 998 octets are broken (RFC 5322, 2.1.1; RFC 2045, 2.8).
"""

from __future__ import annotations

import re

from mqcd.core.value import value

MAX_LINE = 998
_LINE_END = re.compile(rb"\r\n|\r|\n")


@value
class Excerpt:
    """What is returned of a message."""

    octets: bytes
    """Ends in CRLF, unless empty."""
    headers_only: bool
    """It ends with or within the header section."""
    cut: bool
    """Something was left out."""

    @property
    def header_section(self) -> bytes:
        """The header fields of the message, as far as they are here."""
        return self.octets.partition(b"\r\n\r\n")[0]


def excerpt(head: bytes, size: int, headers_only: bool) -> Excerpt:
    """What to return of a message of `size` octets that begins with `head`.

    `headers_only`: the sender asked for no more (RET=HDRS, RFC 3461, 4.3).
    """
    cut = len(head) < size
    lines = _LINE_END.split(head.replace(b"\0", b""))
    last = lines.pop()
    if last and not cut:
        lines.append(last)
    try:
        end = lines.index(b"")
    except ValueError:
        end = len(lines)
    fields = [part for line in lines[:end] for part in _broken(line, b" ")]
    body = [part for line in lines[end + 1 :] for part in _broken(line, b"")]
    short = headers_only or (cut and end == len(lines))
    kept = fields if short else [*fields, b"", *body]
    return Excerpt(
        octets=b"".join(line + b"\r\n" for line in kept),
        headers_only=short,
        cut=cut or (short and end < len(lines)),
    )


def _broken(line: bytes, prefix: bytes) -> list[bytes]:
    """The line in pieces of at most MAX_LINE octets; `prefix` begins each but the first.

    A header line must go on with a space, lest its rest be taken for another header field.
    """
    pieces = []
    while len(line) > MAX_LINE:
        at = MAX_LINE
        while at > MAX_LINE - 3 and line[at] & 0xC0 == 0x80:
            at -= 1
        pieces.append(line[:at])
        line = prefix + line[at:]
    return [*pieces, line]
