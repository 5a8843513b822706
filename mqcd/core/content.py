"""An open handle on content in memory."""

from __future__ import annotations


class MemoryContent:
    """A message's octets; the handle keeps them after the queue has released the message."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self.size = len(octets)
        self._at = 0

    async def read(self, octets: int) -> bytes:
        """The next octets, at most as many as asked; b"" at the end. ValueError once closed."""
        if self._at < 0:
            raise ValueError("this content is closed")
        chunk = self._octets[self._at : self._at + octets]
        self._at += len(chunk)
        return chunk

    def close(self) -> None:
        """Release the octets."""
        self._octets = b""
        self._at = -1
