"""A small HTTP server for the ops pages (RFC 9112): one request per connection.

It is made for a scraper, a browser and the commands on the same machine, not to face the world: no
keep-alive, and bodies only where a page takes one. A peer that is slow, endless or wrong costs one bounded
connection and gets 400, 408, 413 or 431. At the limit on connections the oldest of those that wait for their
peers is closed; 503 where all are being answered. A page that fails gives 500 and a log line. With `hosts`, a
request under another name gets 421 (see `hosts`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote

from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.net.credentials import NOBODY, peer_uid
from mqcd.net.listening import ProtocolServer, bind
from mqcd.net.waits import in_time
from mqcd.ops.http.exchange import Answer, Request, encode, parse_request, plain
from mqcd.ops.http.hosts import KnownHosts

__all__ = ["Answer", "HttpServer", "Page", "Request", "Resource"]

log = logging.getLogger(__name__)

BACKLOG = 100
MAX_HEAD = 8192
"""Octets of a request's line and header fields."""
MAX_BODY = 65_536
MAX_CONNECTIONS = 64
TIME_LIMIT_MS = 5_000
"""For reading a request's head, its body, for its page (GET) to answer, and for sending that: each anew."""
SEARCH_LIMIT_MS = 120_000
"""For a page that `searches` to answer."""
STREAM_LIMIT_MS = 60_000
"""For the peer to read what is streamed to it."""
_CHUNK = 1 << 16


Page = Callable[[Request], Answer | Awaitable[Answer]]
"""A page that has to wait for something gives an awaitable. For GET it has TIME_LIMIT_MS, or SEARCH_LIMIT_MS
where the page `searches`; for POST it has no limit."""
Result = TypeVar("Result")


@value(kw_only=False)
class Resource:
    """What a path can be asked."""

    get: Page | None = None
    """GET and HEAD: look at it."""
    post: Page | None = None
    """POST: change something, with a body, and in its own time."""
    searches: bool = False
    """Whether `get` looks through the whole queue, which takes as long as the queue is."""
    reads: bool = False
    """Whether `post` reads the body by itself, which may have any length: `Request.chunks`."""

    @property
    def methods(self) -> tuple[str, ...]:
        return (("GET", "HEAD") if self.get else ()) + (("POST",) if self.post else ())


Pages = Mapping[str, Page | Resource]
"""By path; a part of it may be {name}, which stands for any text without a slash. A page alone is a `get`."""


class HttpServer:
    """Serves `pages`, by path, between `listen` or `serve` and `stop`."""

    def __init__(
        self,
        pages: Pages,
        clock: Clock,
        hosts: KnownHosts | None = None,
        most: int = MAX_CONNECTIONS,
    ) -> None:
        """`hosts`: the names to answer under, None = all; `most`: connections at once."""
        self._pages = {
            path: page if isinstance(page, Resource) else Resource(page) for path, page in pages.items()
        }
        self._patterns = [(_pattern(path), page) for path, page in self._pages.items() if "{" in path]
        self._clock = clock
        self.hosts = hosts
        self._most = most
        self._bound: socket.socket | None = None
        self._server: ProtocolServer | None = None
        self._open: dict[asyncio.Task[None], bool] = {}
        """Connections, the oldest first: whether each waits for its peer."""

    async def bind(self, interface: str, port: int) -> int:
        """Bind a TCP port, 0 for any; returns it. No client can connect before `listen`.

        Raises OSError when the address cannot be had.
        """
        [self._bound] = await bind(interface, port)
        taken: int = self._bound.getsockname()[1]
        return taken

    def adopt(self, bound: socket.socket) -> None:
        """Instead of `bind`: a socket that is bound already."""
        self._bound = bound

    async def listen(self) -> None:
        """Serve on the port of `bind`. Raises OSError when another process listens there by now."""
        if self._bound is not None:
            self._listen(self._bound)
            # The server's own from here on.
            self._bound = None

    async def serve(self, bound: socket.socket) -> None:
        """Listen on a unix socket that is bound already."""
        self._listen(bound)

    def _listen(self, bound: socket.socket) -> None:
        self._server = ProtocolServer([bound], self._protocol, self._clock)
        self._server.listen(BACKLOG)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._connected, loop=loop)

    async def stop(self) -> None:
        """Stop listening and close all connections. Stopping twice is harmless."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        if self._server is None:
            return
        await self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._make_room()
            self._open[task] = False
            task.add_done_callback(self._ended)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, TimeoutError) as error:
            log.debug("a connection to the ops listener broke: %s", error)
            writer.transport.abort()
        except asyncio.CancelledError:
            # Cut off, which ends here: asyncio takes a cancelled connection for a fault of the server's.
            writer.transport.abort()
        finally:
            writer.close()

    def _make_room(self) -> None:
        """Cut off the oldest connection that waits for its peer, if there are as many as may be."""
        if len(self._open) < self._most:
            return
        waits = next((task for task, waits in self._open.items() if waits), None)
        if waits is not None:
            waits.cancel()
            # It counts no more, though it has not ended yet.
            self._ended(waits)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) > self._most:
            request, whole = None, False
            answer = plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
        else:
            request, whole, answer = await self._answer(reader, writer)
        head_only = request is not None and request.method == "HEAD"
        writer.write(encode(answer, head_only=head_only))
        if answer.chunks is None:
            await self._for_peer(writer.drain())
        else:
            async with aclosing(answer.chunks) as chunks:
                try:
                    await self._for_peer(writer.drain())
                except BaseException:
                    # `aclosing` makes the generator close what it holds, but only if that has begun:
                    # `head_only` begins it and sends nothing.
                    await in_time(
                        self._clock, TIME_LIMIT_MS, self._stream(chunks, writer, None, head_only=True)
                    )
                    raise
                await self._stream(chunks, writer, answer.length, head_only=head_only)
        if not whole:
            # Closing on unread octets resets the connection, and the peer would not see why.
            writer.write_eof()
            await self._for_peer(_discard(reader))

    async def _stream(
        self,
        chunks: AsyncIterator[bytes],
        writer: asyncio.StreamWriter,
        length: int | None,
        *,
        head_only: bool,
    ) -> None:
        """Send them until they end, or the peer has gone; what was promised and does not come breaks the
        connection, so that the peer knows."""
        if head_only:
            # So that it has begun: see `_serve`.
            await anext(chunks, b"")
            return
        sent = 0
        try:
            async for chunk in chunks:
                if writer.is_closing():
                    # uvloop's transports take it for a fault of the caller's to write then.
                    raise ConnectionResetError("the peer has gone")
                writer.write(chunk)
                sent += len(chunk)
                await in_time(self._clock, STREAM_LIMIT_MS, writer.drain())
        except (ConnectionError, TimeoutError):
            raise
        except Exception:
            log.exception("a page failed in the middle")
            raise ConnectionError("a page failed in the middle") from None
        if length is not None and sent != length:
            raise ConnectionError(f"{sent} octets of {length} could be sent")

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Request | None, bool, Answer]:
        """The request, None where it is none; whether it was read to its end; the answer."""
        request: Request | None = None
        try:
            head = await self._for_peer(reader.readuntil(b"\r\n\r\n"))
            request = parse_request(head)
            if request is None:
                return None, False, plain(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
            found, names = self._found(request.path)
            reads = found is not None and found.reads and request.method == "POST"
            if refused := self._refused(request, reads):
                return request, False, refused
            if request.continues:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = b""
            if request.length and not reads:
                body = await self._for_peer(reader.readexactly(request.length))
        except TimeoutError:
            return request, False, plain(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")
        except asyncio.LimitOverrunError:
            text = "the request is too long"
            return request, False, plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        except asyncio.IncompleteReadError:
            return request, False, plain(HTTPStatus.BAD_REQUEST, "the request ends before its end")
        chunks = self._body(reader, request.length) if reads else None
        request = replace(request, body=body, chunks=chunks, uid=_peer(writer), names=names)
        answer = await self._page(found, request)
        # What a page reads by itself it may leave.
        return request, not reads, answer

    async def _body(self, reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
        while length:
            chunk = await in_time(self._clock, STREAM_LIMIT_MS, reader.read(min(length, _CHUNK)))
            if not chunk:
                raise ConnectionError("the request ends before its end")
            length -= len(chunk)
            yield chunk

    def _found(self, path: str) -> tuple[Resource | None, Mapping[str, str]]:
        """The page of a path, and what stands for the names in it."""
        page = self._pages.get(path)
        if page is not None:
            return page, {}
        for pattern, each in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:
                return each, {name: unquote(text) for name, text in match.groupdict().items()}
        return None, {}

    def _refused(self, request: Request, reads: bool) -> Answer | None:
        """Why a request is rejected before its body is read."""
        if self.hosts is not None and request.host is not None and not self.hosts.admits(request.host):
            text = "this server does not go by that name; ops/hosts names others that it answers under"
            return plain(HTTPStatus.MISDIRECTED_REQUEST, text)
        if request.length < 0:
            return plain(HTTPStatus.LENGTH_REQUIRED, "say the length of the body by Content-Length")
        if request.length > MAX_BODY and not reads:
            return plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MAX_BODY} octets")
        return None

    async def _page(self, found: Resource | None, request: Request) -> Answer:
        if found is None:
            known = " ".join(sorted(self._pages))
            return plain(HTTPStatus.NOT_FOUND, f"no such page; there are: {known}")
        page = {"GET": found.get, "HEAD": found.get, "POST": found.post}.get(request.method)
        if page is None:
            allowed = ", ".join(found.methods)
            return replace(plain(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}"), allow=allowed)
        try:
            answer = page(request)
            if isinstance(answer, Answer):
                return answer
            if request.method == "POST":
                return await answer
            limit_ms = SEARCH_LIMIT_MS if found.searches else TIME_LIMIT_MS
            return await in_time(self._clock, limit_ms, _awaited(answer))
        except TimeoutError:
            return plain(HTTPStatus.GATEWAY_TIMEOUT, "this page takes too long now")
        except Exception:
            # A fault in one page must not cost the others; the trace goes to the log, not to the peer.
            log.exception("page %s failed", request.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log says why")

    async def _for_peer(self, work: Coroutine[Any, Any, Result]) -> Result:
        """`in_time`, for work that the peer is waited for: it may be cut off to make room."""
        task = asyncio.current_task()
        if task is None or task not in self._open:
            return await in_time(self._clock, TIME_LIMIT_MS, work)
        self._open[task] = True
        try:
            return await in_time(self._clock, TIME_LIMIT_MS, work)
        finally:
            if task in self._open:
                self._open[task] = False


async def _awaited(answer: Awaitable[Answer]) -> Answer:
    return await answer


async def _discard(reader: asyncio.StreamReader) -> None:
    left = 8 * MAX_HEAD
    while left > 0 and (octets := await reader.read(MAX_HEAD)):
        left -= len(octets)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))


def _peer(writer: asyncio.StreamWriter) -> int:
    """User id of the peer of a unix socket; NOBODY for any other."""
    bound = writer.get_extra_info("socket")
    if bound is None:
        return NOBODY
    with socket.socket(fileno=os.dup(bound.fileno())) as own:
        return peer_uid(own)
