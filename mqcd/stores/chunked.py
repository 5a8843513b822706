"""Content that a store keeps in chunks of one size: cut into them, and read one at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from mqcd.core.errors import ContentUnavailable, StoreUnavailable


def cut(content: bytes, octets: int) -> list[bytes]:
    """Chunks of `octets`, the last of what is left; at least one, since content may have no octets."""
    return [content[at : at + octets] for at in range(0, len(content), octets)] or [b""]


async def cut_anew(chunks: AsyncIterator[bytes], octets: int) -> AsyncGenerator[bytes, None]:
    """What comes in chunks of any size, in chunks as `cut` makes them. Close it where it is left early."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = cut(rest + chunk, octets)
        for piece in whole:
            yield piece
    yield rest


class ChunkedContent:
    """An open handle on long content."""

    def __init__(
        self,
        name: str,
        size: int,
        octets: int,
        chunk: Callable[[int], Awaitable[Any]],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`name`: for errors; `octets`: of a chunk. `chunk` reads one by its number, none or b"" where it is
        gone, and raises StoreUnavailable; `release` is called once, by `close`."""
        self._name = name
        self.size = size
        self._octets = octets
        self._read_chunk: Callable[[int], Awaitable[Any]] | None = chunk
        self._release = release
        self._at = 0
        self._chunk = b""

    async def read(self, octets: int) -> bytes:
        """The next octets, of one chunk; b"" at the end."""
        if self._read_chunk is None:
            raise ValueError("this content is closed")
        if self._at >= self.size:
            return b""
        number, offset = divmod(self._at, self._octets)
        if not offset or not self._chunk:
            try:
                self._chunk = await self._read_chunk(number) or b""
            except StoreUnavailable as error:
                raise ContentUnavailable(str(error)) from error
        data = self._chunk[offset : offset + octets]
        if not data:
            raise ContentUnavailable(f"{self._name}: its content is cut off")
        self._at += len(data)
        return data

    def close(self) -> None:
        """Release it. Twice is harmless."""
        if self._read_chunk is not None:
            self._read_chunk, self._chunk = None, b""
            self._release()
