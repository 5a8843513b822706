"""Content as it comes over the wire after DATA: its end and its doubled dots. Pure.

RFC 5321, 4.1.1.4 and 4.5.2:

* The end is CRLF "." CRLF and nothing else: a bare CR or LF is content like any other octet, and so is what
  looks like an end with one. No chunk that is given ends between a line end and what follows it.
* A dot that opens a line is taken off. Nothing else is changed or lost.
* The CRLF before the final dot belongs to the content; an empty one is b"".

Chunks may be cut anywhere, also inside the end; each octet is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_END = b"\r\n.\r\n"
_STUFFED = b"\r\n."
_PREFIXES = (b"\r\n.\r", b"\r\n.", b"\r\n", b"\r", b"\n")
"""The last one for readers that take a bare LF for a line end: a dot may follow it."""


class Unstuffer:
    """Turns what comes over the wire into content, chunk by chunk."""

    __slots__ = ("_held", "_virtual", "done", "rest", "size")

    def __init__(self) -> None:
        # The command line's CRLF stands before the content, so a dot may open the very first line.
        self._held = b"\r\n"
        self._virtual = 2
        self.size = 0
        """Octets of content so far."""
        self.done = False
        """The end has been read."""
        self.rest = b""
        """What came behind the end: the next commands."""

    def feed(self, data: bytes) -> bytes:
        """The content that `data` completes; may be empty while an end is being awaited."""
        work = self._held + data
        # Both the end and a doubled dot begin so, and most chunks have neither: they are searched once. For a
        # single octet CPython has the processor search; of three it finds the last quicker than the first.
        dots = b"." in work and work.rfind(_STUFFED) >= 0
        end = work.find(_END) if dots else -1
        if end >= 0:
            self.done = True
            self.rest = work[end + len(_END) :]
            self._held = b""
            work = work[: end + 2]
        else:
            self._held = _open_end(work)
            work = work[: len(work) - len(self._held)]
        return self._plain(work, dots)

    def _plain(self, work: bytes, dots: bool = True) -> bytes:
        if dots:
            work = work.replace(_STUFFED, b"\r\n")
        if self._virtual and work:
            work = work[self._virtual :]
            self._virtual = 0
        self.size += len(work)
        return work


class _Endless(Unstuffer):
    """For content that was kept as it came, without the end: a lone dot in it is a line like any other."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        work = self._held + data
        self._held = _open_end(work)
        return self._plain(work[: len(work) - len(self._held)])

    def last(self) -> bytes:
        """The content that was held back for an end that does not come."""
        return self._plain(self._held)


def unstuff(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a file that holds it as it came, without the final dot; no chunk of it is empty."""
    reader = _Endless()
    for chunk in chunks:
        if part := reader.feed(chunk):
            yield part
    if part := reader.last():
        yield part


def _open_end(work: bytes) -> bytes:
    """The longest tail of `work` that the end may have begun with."""
    for prefix in _PREFIXES:
        if work.endswith(prefix):
            return prefix
    return b""
