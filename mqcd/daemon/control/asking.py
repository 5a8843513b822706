"""How processes of one server ask those of shards: over each one's own control socket.

They pass on who asked them. An answer is whole, or comes as a stream, for contents and what is live.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from http import HTTPStatus
from pathlib import Path

from mqcd.core.value import value
from mqcd.ops.http.server import TIME_LIMIT_MS

ASK_S = TIME_LIMIT_MS / 1000 - 1
"""How long a shard may take to answer a page: the page that asks has time left to name it."""
ACT_S = 600.0
"""How long it may take to change something, or to read its queue."""
_CHUNK = 1 << 16
_PIECES = 100
"""Of streams that wait for their reader."""
_SILENT = b"it does not answer"


@value
class Question:
    """What is asked of a shard."""

    target: str
    """Path and query."""
    by: str
    """Who asks, see `Request.by`."""
    method: str = "GET"
    body: bytes = b""
    seconds: float = ASK_S
    accept: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the header."""

    def head(self, length: int) -> bytes:
        """The request without its body."""
        author = f"X-Mqcd-Author: {self.by}\r\n" if self.by else ""
        author += f"Accept: {self.accept}\r\n" if self.accept else ""
        author += "".join(f"{name}: {value}\r\n" for name, value in self.fields.items())
        return f"{self.method} {self.target} HTTP/1.0\r\n{author}Content-Length: {length}\r\n\r\n".encode()


@value
class Reply:
    """What it answers."""

    status: int
    """0 = nothing; the body says why."""
    body: bytes = b""
    content_type: str = ""
    length: int | None = None
    chunks: AsyncGenerator[bytes, None] | None = None
    """With `begin`: the body, to be read or closed."""

    @property
    def good(self) -> bool:
        return self.status == HTTPStatus.OK


async def ask(path: Path, question: Question) -> Reply:
    """A whole answer."""
    try:
        async with asyncio.timeout(question.seconds):
            return await read_whole(await begin(path, question))
    except TimeoutError:
        return Reply(status=0, body=_SILENT)
    except OSError as error:
        return _broken(error)


async def read_whole(reply: Reply) -> Reply:
    """The same with its body. Raises OSError."""
    if reply.chunks is None:
        return reply
    parts = [chunk async for chunk in reply.chunks]
    return Reply(status=reply.status, body=b"".join(parts), content_type=reply.content_type)


async def begin(
    path: Path, question: Question, upload: AsyncIterator[bytes] | None = None, length: int = 0
) -> Reply:
    """The beginning of an answer, and its body as it comes. `upload`: a body of `length` octets."""
    try:
        async with asyncio.timeout(question.seconds):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(
                    question.head(length if upload is not None else len(question.body)) + question.body
                )
                if upload is not None:
                    async for chunk in upload:
                        writer.write(chunk)
                        await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
            except BaseException:
                writer.close()
                raise
    except TimeoutError:
        return Reply(status=0, body=_SILENT)
    except asyncio.IncompleteReadError:
        return Reply(status=0, body=_SILENT)
    except OSError as error:
        return _broken(error)
    return _begun(head, reader, writer)


def _begun(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Reply:
    start, *lines = head.decode("latin-1").split("\r\n")
    words = start.split(" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        writer.close()
        return Reply(status=0, body=_SILENT)
    fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    length = fields.get("content-length")
    return Reply(
        status=int(words[1]),
        content_type=fields.get("content-type", ""),
        length=int(length) if length is not None else None,
        chunks=_body(reader, writer),
    )


async def _body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncGenerator[bytes, None]:
    try:
        while chunk := await reader.read(_CHUNK):
            yield chunk
    finally:
        writer.close()


def _broken(error: OSError) -> Reply:
    return Reply(status=0, body=f"it does not answer: {error.strerror or error}".encode())


async def merged(streams: Sequence[AsyncGenerator[bytes, None]], end: bytes) -> AsyncGenerator[bytes, None]:
    """Several streams as one, whole pieces of each, as they come; `end` ends a piece."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES)

    async def follow(stream: AsyncGenerator[bytes, None]) -> None:
        held = b""
        try:
            async with aclosing(stream):
                async for chunk in stream:
                    whole, found, rest = (held + chunk).rpartition(end)
                    held = rest
                    if found:
                        await pieces.put(whole + end)
        except OSError:
            # Its shard is gone; the others go on.
            held = b""
        await pieces.put(None)

    tasks = [asyncio.ensure_future(follow(stream)) for stream in streams]
    left = len(tasks)
    try:
        while left:
            piece = await pieces.get()
            if piece is None:
                left -= 1
            else:
                yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
