"""Encodes content for the wire: dot-stuffed after DATA (RFC 5321, 4.5.2), or by BDAT (RFC 3030). Pure.

Content is never changed but for the doubled dots, and, after DATA, for a CRLF added where the last line
has none: the final dot needs a line of its own. BDAT counts octets and needs neither.
"""

from __future__ import annotations

from typing import Protocol


class Wrapping(Protocol):
    """Encodes the content of one message, chunk after chunk."""

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        """The next octets of the content as they go over the wire; with `last`, its end as well."""


class DotStuffer:
    """Doubles the dots that begin a line, however the content is cut, and ends it with a lone one."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\r\n"

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        return self.stuff(chunk) + self.final() if last else self.stuff(chunk)

    def stuff(self, chunk: bytes) -> bytes:
        """The next octets of the content as they go over the wire."""
        if not chunk:
            return chunk
        before = self._tail
        self._tail = chunk[-2:] if len(chunk) > 1 else before[-1:] + chunk
        # See `core.smtp.transparency` for the ways of searching.
        dots = b"." in chunk and chunk.rfind(b"\r\n.") >= 0
        stuffed = chunk.replace(b"\r\n.", b"\r\n..") if dots else chunk
        if chunk[:1] == b"." and before == b"\r\n":
            return b"." + stuffed
        if chunk[:2] == b"\n." and before[-1:] == b"\r":
            return b"\n." + stuffed[1:]
        return stuffed

    def final(self) -> bytes:
        """The final dot, on a line of its own."""
        return b".\r\n" if self._tail == b"\r\n" else b"\r\n.\r\n"


class Chunker:
    """Each chunk behind a BDAT that says how long it is."""

    __slots__ = ()

    def wrap(self, chunk: bytes, last: bool) -> bytes:
        """See `Wrapping`. The last chunk may be empty."""
        return b"BDAT %d%b\r\n%b" % (len(chunk), b" LAST" if last else b"", chunk)
