"""Message content as it comes: line ends, forbidden octets, Received fields. Pure.

After DATA the end and its doubled dots are `mqcd.core.smtp.transparency`'s: only CRLF.CRLF ends the data.

* A bare LF ends a line: it becomes CRLF (`bare_newline` = normalize), and the line behind it is a line like
  any other, of which a first dot is taken off. A lone dot between other line ends is therefore no end here,
  and an empty line in what is sent on, so that no next hop can see an end in it either. With `reject` it is
  a fault.
* A bare CR is always a fault: some server on the way would read a line that ends in one as the end, and what
  follows as commands. So is NUL, at which others cut a line.

A fault is noted; the caller refuses the message after its real end, so the session stays in step. 8-bit
octets pass, since refusing them loses mail that the next hop may well take.
"""

from __future__ import annotations

import io

from mqcd.core.smtp.transparency import Unstuffer

_GOOD_ENDS = (None, "\r\n")
_BARE_CR = "Bare CR in the message, lines end in CRLF"
_BARE_LF = "Bare LF in the message, lines end in CRLF"
_NUL = "NUL in the message"
_RECEIVED = b"\r\nreceived:"
_MAX_FIELD_NAME = len(_RECEIVED)


class LineEnds:
    """Checks the line ends of content that comes in pieces; none ends between a CR and what follows it."""

    __slots__ = ("_ends", "_normalize", "fault")

    def __init__(self, *, normalize: bool = True) -> None:
        """`normalize`: a bare LF becomes CRLF; else it is a fault."""
        self._ends = io.IncrementalNewlineDecoder(None, translate=False)
        self._normalize = normalize
        self.fault = ""
        """The first fault of the content; "" = none so far."""

    def are_good(self, work: bytes) -> bool:
        """Whether all so far were CRLF; where not, `work` goes through `mend`."""
        # It is made for text, but distinguishes line ends in a quarter of the time that any count of octets
        # takes. No pair is ever cut, so each piece is the last for it.
        self._ends.decode(work.decode("latin-1"), final=True)
        if not self.fault and b"\0" in work:
            self.fault = _NUL
        return self._ends.newlines in _GOOD_ENDS

    def mend(self, work: bytes) -> bytes:
        """`work` with CRLF line ends; some so far were bare."""
        if "\r" in (self._ends.newlines or ()):
            self.fault = self.fault or _BARE_CR
        elif not self._normalize:
            self.fault = self.fault or _BARE_LF
        return work.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


class BodyReader(Unstuffer):
    """Turns the octets behind DATA into content, chunk by chunk, and checks line ends."""

    __slots__ = ("_ends",)

    def __init__(self, *, normalize: bool = True) -> None:
        """`normalize`: a bare LF becomes CRLF; else it is a fault."""
        super().__init__()
        self._ends = LineEnds(normalize=normalize)

    @property
    def fault(self) -> str:
        """The first fault of the content; "" = none so far."""
        return self._ends.fault

    def _plain(self, work: bytes, dots: bool = True) -> bytes:
        if not self._ends.are_good(work):
            work = self._ends.mend(work)
            dots = True
        return super()._plain(work, dots)


class LineLimit:
    """Whether the lines of content that comes in chunks keep to a limit (RFC 5322, 2.1.1)."""

    __slots__ = ("_most", "_open")

    def __init__(self, most: int) -> None:
        """`most`: octets of a line without its CRLF."""
        self._most = most
        self._open = b""
        """What has come of the line that has not ended."""

    def keeps(self, content: bytes) -> bool:
        """Whether all lines so far are short enough, after one more chunk; not to be called after a False."""
        work = self._open + content
        begin = 0
        while len(work) - begin > self._most:
            # From the last line end that the first of these lines may have; most lines are never looked at.
            end = work.rfind(b"\r\n", begin, begin + self._most + 2)
            if end < 0:
                # One more may be the CR of the line's end.
                if len(work) - begin > self._most + 1 or not work.endswith(b"\r"):
                    return False
                break
            begin = end + 2
        self._open = work[begin:]
        return True


class HopCounter:
    """Counts Received header fields in content that comes in chunks (RFC 5321, 6.3)."""

    __slots__ = ("_in_header", "_tail", "hops")

    def __init__(self) -> None:
        self._tail = b"\r\n"
        self._in_header = True
        self.hops = 0
        """Received fields so far."""

    def feed(self, content: bytes) -> int:
        """`hops` after one more chunk. Octets behind the header are not searched."""
        if self._in_header:
            work = self._tail + content
            end = work.find(b"\r\n\r\n")
            if end >= 0:
                work = work[:end]
                self._in_header = False
            self.hops += work.lower().count(_RECEIVED)
            # One octet less than the pattern: a counted field is never counted again.
            self._tail = work[-(_MAX_FIELD_NAME - 1) :]
        return self.hops
