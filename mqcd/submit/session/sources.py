"""One message's octets off the wire, as content: up to the final dot of DATA, or chunk by chunk of BDAT.

`next` gives what has come, maybe nothing yet; `done` says that all has. `finish` reads and drops what stands
between here and the place where the reply to an error is due: after DATA the message's end, with BDAT that of
the chunk (RFC 3030, 2), so the session stays in step. All raise ConnectFailed when the client leaves, and
Interrupted when the session is ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mqcd.core.errors import MqcdError
from mqcd.submit.message.body import BodyReader
from mqcd.submit.message.chunking import Chunk, ChunkReader
from mqcd.submit.session.wire import Wire


class Abandoned(MqcdError):
    """A command between two chunks has ended the message; that command has its reply."""


class Dotted:
    """Content behind DATA."""

    __slots__ = ("_wire", "reader")

    def __init__(self, wire: Wire, *, normalize: bool = True) -> None:
        self._wire = wire
        self.reader = BodyReader(normalize=normalize)

    async def next(self) -> bytes:
        """The next content."""
        reader = self.reader
        part = reader.feed(await self._wire.take())
        if reader.done and reader.rest:
            self._wire.unread(reader.rest)
        return part

    async def finish(self) -> None:
        """Drop everything up to the final dot."""
        while not self.reader.done:
            await self.next()


class Chunked:
    """Content behind BDAT."""

    __slots__ = ("_next_chunk", "_wire", "reader")

    def __init__(
        self, wire: Wire, first: Chunk, next_chunk: Callable[[], Awaitable[Chunk]], *, normalize: bool = True
    ) -> None:
        """`next_chunk`: replies to a chunk, not the last, and waits for the next, or raises Abandoned."""
        self._wire = wire
        self._next_chunk = next_chunk
        self.reader = ChunkReader(normalize=normalize)
        self.reader.expect(first)

    async def next(self) -> bytes:
        """The next content."""
        reader = self.reader
        if not (reader.missing or reader.done):
            reader.expect(await self._next_chunk())
        return reader.feed(await self._wire.take(reader.missing) if reader.missing else b"")

    async def finish(self) -> None:
        """Drop the rest of the chunk."""
        while self.reader.missing:
            self.reader.feed(await self._wire.take(self.reader.missing))


Source = Dotted | Chunked
