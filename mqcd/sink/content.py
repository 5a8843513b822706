"""The octets between DATA and the end of data, up to a limit. Pure.

The result does not depend on how the octets were cut into chunks.
"""

from mqcd.core.transparency import Unstuffer


class ContentCollector:
    """Takes chunks until the end of data; keeps at most `max_size` octets, and a chunk."""

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
