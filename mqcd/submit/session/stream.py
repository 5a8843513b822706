"""One message's content as it comes: a source takes it off the wire, up to the final dot of DATA or chunk by
chunk of BDAT, and a `Stream` checks it against limits on the way.

`next` of a source gives what has come, maybe nothing yet; `done` of its reader says that all has. `finish`
reads and drops what stands between here and the place where the reply to an error is due: after DATA the
message's end, with BDAT that of the chunk (RFC 3030, 2), so the session keeps step. Both raise ConnectFailed
when the client leaves, and Interrupted when the session is ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from mqcd.core.errors import MqcdError
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.esmtp.replies import TOO_LARGE
from mqcd.submit.message.body import BodyReader, HopCounter, LineLimit
from mqcd.submit.message.chunking import Chunk, ChunkReader
from mqcd.submit.session.wire import Wire

_LOOP = Reply(code=554, status="5.4.6", text="Too many hops, the message is looping")
STEP = 1 << 18
"""Octets of a large message that a fast client passes to the store per step: each step costs a thread switch,
as much as writing 64 KB."""
_QUICK = 16 << 10
"""Octets that a fast client has sent at each read."""


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
        self._wire.refuse()
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
        await self._wire.skip(self.reader.missing)
        self.reader.missing = 0


Source = Dotted | Chunked


class Stream(AsyncIterator[bytes]):
    """The content of one message as it comes, checked against limits on the way.

    Raises DoorRefused for what the message may not be, and what its source raises; each is the end of the
    iteration.
    """

    __slots__ = ("_body", "_hops", "_limit", "_lines", "_maxhops", "_maxline", "_ready", "_source", "_watch")

    def __init__(self, source: Source, maxmsgsize: int, maxhops: int, maxline: int) -> None:
        self._source = source
        self._body = source.reader
        self._limit = maxmsgsize
        self._maxhops = maxhops
        self._maxline = maxline
        self._hops = HopCounter()
        self._lines = LineLimit(maxline) if maxline else None
        self._ready: list[bytes] = []
        """What comes first in the iteration: empty, or holds at least one octet, or that would end there."""
        self._watch: Callable[[bytes], None] | None = None

    async def begin(self, octets: int) -> bytes | None:
        """The whole content if it has no more than `octets`; else None, and it is to be iterated.

        Raises like the iteration.
        """
        parts: list[bytes] = []
        while not self._body.done and self._body.size <= octets:
            parts.append(await self._next())
        if self._body.done and self._body.size <= octets:
            return b"".join(parts)
        self._ready = parts
        return None

    def replace(self, first: bytes, watch: Callable[[bytes], None]) -> None:
        """Put `first` in the place of the received part of the content to iterate; `watch` sees the rest."""
        self._ready = [first]
        self._watch = watch

    async def head(self, octets: int) -> bytes:
        """The beginning of what is to be iterated: its header section, if it is at most `octets` long."""
        head = b"".join(self._ready)
        while b"\r\n\r\n" not in head and len(head) <= octets and not self._body.done:
            head += await self._next()
        self._ready = [head]
        return head

    @property
    def done(self) -> bool:
        """Whether all has been received."""
        return self._body.done

    @property
    def size(self) -> int:
        """Octets received so far."""
        return self._body.size

    @property
    def first(self) -> bytes:
        """The received part of the content to iterate."""
        if len(self._ready) > 1:
            self._ready = [b"".join(self._ready)]
        return self._ready[0] if self._ready else b""

    def prepend(self, header: bytes) -> None:
        """Put `header` before the content to iterate."""
        self._ready.insert(0, header)

    async def __anext__(self) -> bytes:
        parts, self._ready = self._ready, []
        octets = sum(map(len, parts))
        slow = bool(parts)
        while not (self._body.done or slow or octets >= STEP):
            part = await self._next()
            parts.append(part)
            octets += len(part)
            # Only fast clients are gathered from: many slow ones would fill the memory.
            slow = 0 < len(part) < _QUICK
        if not octets:
            raise StopAsyncIteration
        return b"".join(parts)

    async def _next(self) -> bytes:
        """The next content: b"" at the end alone."""
        while True:
            part = await self._source.next()
            refused = self._judge(part)
            if refused is not None:
                raise refused
            if part or self._body.done:
                if self._watch is not None:
                    self._watch(part)
                return part

    def _judge(self, part: bytes) -> DoorRefused | None:
        if self._body.fault:
            reply = Reply(code=554, status="5.6.0", text=self._body.fault)
            return DoorRefused(Reason.CONTENT, reply)
        if self._limit and self._body.size > self._limit:
            return DoorRefused(Reason.SIZE, TOO_LARGE)
        if self._maxhops and self._hops.feed(part) >= self._maxhops:
            return DoorRefused(Reason.LOOP, _LOOP)
        if self._lines is not None and not self._lines.keeps(part):
            text = f"A line of the message is longer than {self._maxline} octets"
            return DoorRefused(Reason.CONTENT, Reply(code=554, status="5.6.0", text=text))
        return None
