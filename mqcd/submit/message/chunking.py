"""Content by BDAT (RFC 3030): what the command says, and the octets of its chunks. Pure.

A chunk is as many octets as its command says, whatever they are: dots mean nothing in it, and a line may go
on in the next chunk. Line ends and forbidden octets are judged over the whole content, as after DATA.
"""

from __future__ import annotations

import re

from mqcd.core.errors import DecodeError
from mqcd.core.value import value
from mqcd.submit.message.body import LineEnds

# Nineteen digits: more octets than any disk has.
_BDAT = re.compile(r"([0-9]{1,19})([ \t]+LAST)?", re.IGNORECASE | re.ASCII)


@value
class Chunk:
    """What one BDAT announces."""

    octets: int
    last: bool


def parse_bdat(argument: str) -> Chunk:
    """What follows the word BDAT. Raises DecodeError."""
    found = _BDAT.fullmatch(argument)
    if found is None:
        raise DecodeError("BDAT takes a number of octets, and perhaps LAST")
    return Chunk(octets=int(found[1]), last=found[2] is not None)


class ChunkReader:
    """Turns the octets of chunks into content, and checks line ends."""

    __slots__ = ("_ends", "_held", "_last", "missing", "size")

    def __init__(self, *, normalize: bool = True) -> None:
        """`normalize`: a bare LF becomes CRLF; else it is a fault."""
        self._ends = LineEnds(normalize=normalize)
        self._held = b""
        self._last = False
        self.missing = 0
        """Octets of the present chunk that have not come."""
        self.size = 0
        """Octets of content so far."""

    def expect(self, chunk: Chunk) -> None:
        """A chunk begins. Its octets are then fed; an empty one is fed b""."""
        self.missing = chunk.octets
        self._last = chunk.last

    @property
    def done(self) -> bool:
        """Whether all of the last chunk has come."""
        return self._last and not self.missing

    @property
    def fault(self) -> str:
        """The first fault of the content; "" = none so far."""
        return self._ends.fault

    def feed(self, data: bytes) -> bytes:
        """The content that `data`, not more than is missing, completes."""
        self.missing -= len(data)
        work = self._held + data
        self._held = b""
        if work.endswith(b"\r") and not self.done:
            # What follows it decides what it is.
            self._held, work = b"\r", work[:-1]
        if not self._ends.are_good(work):
            work = self._ends.mend(work)
        self.size += len(work)
        return work
