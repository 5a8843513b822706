"""The octets between 354 and the final dot: what may not stand there, and what must be counted. Pure.

The end and its doubled dots are `mqcd.core.transparency`'s. Bare CR or LF in content is noted in `bare`: some
server on the way would read a line that ends in one as the end, and what follows as commands. The caller
refuses the message after its real end, so the session stays in step. NUL, 8-bit octets and lines beyond the
limit of 1000 octets pass, since refusing them loses mail that the next hop may well take.
"""

from __future__ import annotations

import io

from mqcd.core.transparency import Unstuffer

_GOOD_ENDS = (None, "\r\n")
_RECEIVED = b"\r\nreceived:"
_MAX_FIELD_NAME = len(_RECEIVED)


class BodyReader(Unstuffer):
    """Turns what comes over the wire into content, chunk by chunk, and looks at its line ends."""

    __slots__ = ("_ends", "bare")

    def __init__(self) -> None:
        super().__init__()
        self._ends = io.IncrementalNewlineDecoder(None, translate=False)
        self.bare = False
        """A CR without LF, or LF without CR, was in the content."""

    def feed(self, data: bytes) -> bytes:
        """The content that `data` completes; may be empty while an end is being awaited."""
        content = super().feed(data)
        # Its business is text, but it tells line ends apart in a quarter of the time that any count of octets
        # takes. No pair is ever cut, so each chunk is the last for it.
        self._ends.decode(content.decode("latin-1"), final=True)
        self.bare = self._ends.newlines not in _GOOD_ENDS
        return content


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
