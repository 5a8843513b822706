"""The octets between 354 and the final dot: transparency, the end, and what may not stand there. Pure.

* The end is CRLF "." CRLF and nothing else (RFC 5321, 4.1.1.4). Its look-alikes with a bare CR or LF
  are content, and bare CR or LF in content is noted in `bare`: some server on the way would read such
  a line as the end, and what follows as commands. The caller refuses the message after its real end,
  so the session stays in step.
* A dot that opens a line is taken off (RFC 5321, 4.5.2). Nothing else is changed or lost: NUL, 8-bit
  octets and lines beyond the limit of 1000 octets pass, since refusing them loses mail that the next
  hop may well take.
* A message always ends in CRLF: the one that its final dot stands behind belongs to it. An empty
  body is b"".

Chunks may be cut anywhere, also inside the end.
"""

from __future__ import annotations

_END = b"\r\n.\r\n"
_STUFFED = b"\r\n."
_PREFIXES = (b"\r\n.\r", b"\r\n.", b"\r\n", b"\r")
_RECEIVED = b"\r\nreceived:"
_MAX_FIELD_NAME = len(_RECEIVED)


class BodyReader:
    """Turns what comes over the wire into content, chunk by chunk."""

    __slots__ = ("_held", "_virtual", "bare", "done", "rest", "size")

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
        self.bare = False
        """A CR without LF, or LF without CR, was in the content."""

    def feed(self, data: bytes) -> bytes:
        """The content that `data` completes; may be empty while an end is being awaited."""
        work = self._held + data
        end = work.find(_END)
        if end >= 0:
            self.done = True
            self.rest = work[end + len(_END) :]
            self._held = b""
            work = work[: end + 2]
        else:
            self._held = _open_end(work)
            work = work[: len(work) - len(self._held)]
        # Each pair has one CR and one LF; whatever is left of either stands alone.
        if len(work) - len(work.translate(None, b"\r\n")) != 2 * work.count(b"\r\n"):
            self.bare = True
        if _STUFFED in work:
            work = work.replace(_STUFFED, b"\r\n")
        if self._virtual and work:
            work = work[self._virtual :]
            self._virtual = 0
        self.size += len(work)
        return work


def _open_end(work: bytes) -> bytes:
    """The longest tail of `work` that the end may have begun with."""
    for prefix in _PREFIXES:
        if work.endswith(prefix):
            return prefix
    return b""


class HopCounter:
    """Counts Received header fields in content that comes in chunks (RFC 5321, 6.3)."""

    __slots__ = ("_in_header", "_tail", "hops")

    def __init__(self) -> None:
        self._tail = b"\r\n"
        self._in_header = True
        self.hops = 0
        """Received fields so far."""

    def feed(self, content: bytes) -> int:
        """`hops` after one more chunk. Octets behind the header cost nothing."""
        if self._in_header:
            work = self._tail + content
            end = work.find(b"\r\n\r\n")
            if end >= 0:
                work = work[:end]
                self._in_header = False
            self.hops += work.lower().count(_RECEIVED)
            # One octet less than the pattern: what was counted is never seen again.
            self._tail = work[-(_MAX_FIELD_NAME - 1) :]
        return self.hops
