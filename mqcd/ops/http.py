"""A small read-only HTTP server for the ops pages (RFC 9112): GET and HEAD, one request per connection.

It is made to be looked at by a scraper and a browser on the same machine, not to face the world: no
keep-alive, no request bodies. A peer that is slow, endless or wrong costs one bounded connection and
gets 400, 408 or 431; beyond MAX_CONNECTIONS it gets 503. A page that fails gives 500 and a log line.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from mqcd.core.errors import ConfigError
from mqcd.core.ports import Clock

log = logging.getLogger(__name__)

MAX_HEAD = 8192
"""Octets of a request's line and header fields."""
MAX_CONNECTIONS = 64
TIME_LIMIT_MS = 5_000
"""For reading a request, and again for sending its answer."""
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is asked for."""

    method: str
    path: str
    """Without the query."""
    query: str = ""
    """What follows the question mark, as sent."""
    accept: str = ""
    """The field Accept: the media types that the client can read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


_ACCEPT = re.compile(rb"\r\naccept:[ \t]*([^\r]*)", re.IGNORECASE)
Page = Callable[[Request], Answer | Awaitable[Answer]]
"""A page that has to wait for something gives an awaitable, which is limited as reading and sending are."""
Result = TypeVar("Result")


class HttpServer:
    """Serves `pages`, by path, between `start` and `stop`."""

    def __init__(self, pages: Mapping[str, Page], clock: Clock) -> None:
        self._pages = pages
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, interface: str, port: int, place: str = "<ops>") -> int:
        """Listen; gives the port, which for port 0 is the system's choice.

        Raises ConfigError when the address cannot be had; `place` says where it is configured.
        """
        try:
            self._server = await asyncio.start_server(self._connected, interface, port, limit=MAX_HEAD)
        except OSError as error:
            raise ConfigError(
                f"{place}: cannot listen on {interface} port {port}: {error.strerror or error}; "
                "set another port or interface, or stop what holds it"
            ) from error
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return bound[1]

    async def stop(self) -> None:
        """Listen no more and cut off who is still connected. Stopping twice is harmless."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, TimeoutError) as error:
            log.debug("a connection to the ops listener broke: %s", error)
            writer.transport.abort()
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) > MAX_CONNECTIONS:
            request, answer = None, _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
        else:
            request, answer = await self._answer(reader)
        writer.write(_encode(answer, head_only=request is not None and request.method == "HEAD"))
        await self._in_time(writer.drain())
        if request is None:
            # Closing on unread octets resets the connection, and the peer would not see why.
            writer.write_eof()
            await self._in_time(_discard(reader))

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Request | None, Answer]:
        try:
            head = await self._in_time(reader.readuntil(b"\r\n\r\n"))
        except TimeoutError:
            return None, _plain(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")
        except asyncio.LimitOverrunError:
            return None, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
        except asyncio.IncompleteReadError:
            return None, _plain(HTTPStatus.BAD_REQUEST, "the request ends before its empty line")
        request = parse_request(head)
        if request is None:
            return None, _plain(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
        return request, await self._page(request)

    async def _page(self, request: Request) -> Answer:
        page = self._pages.get(request.path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return _plain(HTTPStatus.NOT_FOUND, f"no such page; there are: {known}")
        if request.method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
        try:
            answer = page(request)
            return answer if isinstance(answer, Answer) else await self._in_time(_awaited(answer))
        except TimeoutError:
            return _plain(HTTPStatus.GATEWAY_TIMEOUT, f"this page takes more than {TIME_LIMIT_MS} ms now")
        except Exception:
            # A fault in one page must not cost the others; the trace goes to the log, not to the peer.
            log.exception("page %s failed", request.path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log says why")

    async def _in_time(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` gives; TimeoutError when it takes longer than TIME_LIMIT_MS."""
        working = asyncio.ensure_future(work)
        limit = asyncio.ensure_future(self._clock.sleep(TIME_LIMIT_MS))
        try:
            await asyncio.wait((working, limit), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise TimeoutError(f"a peer of the ops listener was silent for {TIME_LIMIT_MS} ms")
            return working.result()
        finally:
            working.cancel()
            limit.cancel()


async def _awaited(answer: Awaitable[Answer]) -> Answer:
    return await answer


async def _discard(reader: asyncio.StreamReader) -> None:
    left = 8 * MAX_HEAD
    while left > 0 and (octets := await reader.read(MAX_HEAD)):
        left -= len(octets)


def parse_request(head: bytes) -> Request | None:
    """The request whose line and fields `head` holds; None when it is no HTTP/1 request."""
    line = head.partition(b"\r\n")[0].decode("latin-1")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        return None
    path, _, query = words[1].partition("?")
    accept = _ACCEPT.search(head)
    return Request(
        method=words[0], path=path, query=query, accept=accept[1].decode("latin-1") if accept else ""
    )


def _plain(status: HTTPStatus, text: str) -> Answer:
    return Answer(status=status, body=f"{status.value} {status.phrase}: {text}\n".encode())


def _encode(answer: Answer, head_only: bool) -> bytes:
    """The answer on the wire; the length is that of the body also where HEAD leaves it out."""
    fields = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        fields["Allow"] = "GET, HEAD"
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    return head.encode("latin-1") + (b"" if head_only else answer.body)
