"""The octets of a message, between DATA and the end of data or in BDAT's chunks, up to a limit. Pure.

The result does not depend on how the octets were cut on their way.
"""

from mqcd.core.transparency import Unstuffer


class ContentCollector:
    """Takes octets until the end of data; keeps at most `max_size` of them, and as many as come at once."""

    __slots__ = ("_max_size", "_parts", "_reader")

    def __init__(self, *, max_size: int) -> None:
        self._max_size = max_size
        self._reader = Unstuffer()
        self._parts: list[bytes] = []

    @property
    def oversize(self) -> bool:
        """More than `max_size` octets have come; the content is lost, the end is still found."""
        return self._reader.size > self._max_size

    def take(self, chunk: bytes) -> bytes | None:
        """Add a chunk; at the end of data return what follows it in the chunk, else None."""
        part = self._reader.feed(chunk)
        if self.oversize:
            self._parts.clear()
        else:
            self._parts.append(part)
        return self._reader.rest if self._reader.done else None

    def content(self) -> bytes:
        """The message, after `take` found its end; b"" if it was too large."""
        return b"".join(self._parts)


class ChunkCollector:
    """Takes the octets that each BDAT command announces (RFC 3030); keeps at most `max_size` of them."""

    __slots__ = ("_left", "_max_size", "_parts", "_size")

    def __init__(self, *, max_size: int) -> None:
        self._max_size = max_size
        self._left = 0
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def oversize(self) -> bool:
        """More than `max_size` octets were announced; the content is lost."""
        return self._size > self._max_size

    def expect(self, octets: int) -> None:
        """A chunk of so many octets begins."""
        self._left = octets
        self._size += octets
        if self.oversize:
            self._parts.clear()

    def take(self, octets: bytes) -> bytes | None:
        """Add octets; at the end of the chunk return what follows it, else None."""
        part = octets[: self._left]
        self._left -= len(part)
        if not self.oversize:
            self._parts.append(part)
        return None if self._left else octets[len(part) :]

    def content(self) -> bytes:
        """All chunks so far; b"" if they were too large."""
        return b"".join(self._parts)
