"""Transparency: content to what goes over the wire after DATA (RFC 5321, 4.5.2). Pure.

Content is never changed but for the doubled dots, and for a CRLF added where the last line has none:
the final dot needs a line of its own.
"""

from __future__ import annotations


class DotStuffer:
    """Doubles the dots that begin a line, chunk after chunk, however the content is cut."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\r\n"

    def stuff(self, chunk: bytes) -> bytes:
        """The next octets of the content as they go over the wire."""
        if not chunk:
            return chunk
        before = self._tail
        self._tail = chunk[-2:] if len(chunk) > 1 else before[-1:] + chunk
        stuffed = chunk.replace(b"\r\n.", b"\r\n..") if b"\n." in chunk else chunk
        if chunk[:1] == b"." and before == b"\r\n":
            return b"." + stuffed
        if chunk[:2] == b"\n." and before[-1:] == b"\r":
            return b"\n." + stuffed[1:]
        return stuffed

    def final(self) -> bytes:
        """The final dot, on a line of its own."""
        return b".\r\n" if self._tail == b"\r\n" else b"\r\n.\r\n"
