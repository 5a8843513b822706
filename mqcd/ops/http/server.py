"""A small HTTP server for the ops pages (RFC 9112): one request per connection.

It is made for a scraper, a browser and the commands on the same machine, not to face the world: no
keep-alive, and bodies only where a page takes one. A peer that is slow, endless or wrong costs one bounded
connection and gets 400, 408, 413 or 431. At the limit on connections the one that has waited longest for its
peer is closed; 503 where all are being answered. A page that fails gives 500 and a log line. With `hosts`, a
request under another name gets 421 (see `hosts`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar

from mqcd.core.ports import Clock
from mqcd.net.credentials import NOBODY, peer_uid
from mqcd.net.listening import bind
from mqcd.ops.http.hosts import KnownHosts

log = logging.getLogger(__name__)

BACKLOG = 100
MAX_HEAD = 8192
"""Octets of a request's line and header fields."""
MAX_BODY = 65_536
MAX_CONNECTIONS = 64
TIME_LIMIT_MS = 5_000
"""For reading a request, and again for sending its answer."""
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request: method, target and the fields that pages use."""

    method: str
    path: str
    """Without the query."""
    query: str = ""
    """What follows the question mark, as sent."""
    accept: str = ""
    """The field Accept: the media types that the client can read."""
    host: str | None = None
    """The field Host; None where there is none."""
    length: int = 0
    """Octets of the body; -1 where they are not said in the one way that is understood."""
    body: bytes = b""
    uid: int = -1
    """User id of the process that asks, over a unix socket; else -1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    allow: str = ""
    """With 405: the methods that there are."""


_ABSOLUTE = re.compile(r"https?://([^/?#@]+)(?=[/?]|$)", re.IGNORECASE)
_FIELD = re.compile(rb"\r\n([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*)")
Page = Callable[[Request], Answer | Awaitable[Answer]]
"""A page that has to wait for something gives an awaitable, which is limited as reading and sending are."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Action:
    """A page that changes something: POST, with a body, and in its own time."""

    page: Page


class HttpServer:
    """Serves `pages`, by path, between `listen` or `serve` and `stop`."""

    def __init__(
        self,
        pages: Mapping[str, Page | Action],
        clock: Clock,
        hosts: KnownHosts | None = None,
        most: int = MAX_CONNECTIONS,
    ) -> None:
        """`hosts`: the names to answer under, None = all; `most`: connections at once."""
        self._pages = pages
        self._clock = clock
        self.hosts = hosts
        self._most = most
        self._bound: socket.socket | None = None
        self._server: asyncio.Server | None = None
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
            self._server = await asyncio.start_server(
                self._connected, sock=self._bound, limit=MAX_HEAD, backlog=BACKLOG
            )
            # The server's own from here on.
            self._bound = None

    async def serve(self, bound: socket.socket) -> None:
        """Listen on a unix socket that is bound already."""
        self._server = await asyncio.start_unix_server(self._connected, sock=bound, limit=MAX_HEAD)

    async def stop(self) -> None:
        """Stop listening and close all connections. Stopping twice is harmless."""
        if self._bound is not None:
            self._bound.close()
            self._bound = None
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
            request, answer = None, _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")
        else:
            request, answer = await self._answer(reader, _peer(writer))
        writer.write(_encode(answer, head_only=request is not None and request.method == "HEAD"))
        await self._for_peer(writer.drain())
        if request is None:
            # Closing on unread octets resets the connection, and the peer would not see why.
            writer.write_eof()
            await self._for_peer(_discard(reader))

    async def _answer(self, reader: asyncio.StreamReader, uid: int) -> tuple[Request | None, Answer]:
        try:
            head = await self._for_peer(reader.readuntil(b"\r\n\r\n"))
            request = parse_request(head)
            if request is None:
                return None, _plain(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
            if refused := self._refused(request):
                return None, refused
            body = await self._for_peer(reader.readexactly(request.length)) if request.length else b""
        except TimeoutError:
            return None, _plain(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")
        except asyncio.LimitOverrunError:
            return None, _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
        except asyncio.IncompleteReadError:
            return None, _plain(HTTPStatus.BAD_REQUEST, "the request ends before its end")
        request = replace(request, body=body, uid=uid)
        return request, await self._page(request)

    def _refused(self, request: Request) -> Answer | None:
        """Why a request is rejected before the look-up."""
        if self.hosts is not None and request.host is not None and not self.hosts.admits(request.host):
            text = "this server does not go by that name; ops/hosts names others that it answers under"
            return _plain(HTTPStatus.MISDIRECTED_REQUEST, text)
        if request.length < 0:
            return _plain(HTTPStatus.LENGTH_REQUIRED, "say the length of the body by Content-Length")
        if request.length > MAX_BODY:
            return _plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {MAX_BODY} octets")
        return None

    async def _page(self, request: Request) -> Answer:
        page = self._pages.get(request.path)
        if page is None:
            known = " ".join(sorted(self._pages))
            return _plain(HTTPStatus.NOT_FOUND, f"no such page; there are: {known}")
        if request.method not in _methods(page):
            allowed = ", ".join(_methods(page))
            return replace(_plain(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}"), allow=allowed)
        try:
            if isinstance(page, Action):
                answer = page.page(request)
                return answer if isinstance(answer, Answer) else await answer
            answer = page(request)
            return answer if isinstance(answer, Answer) else await self._in_time(_awaited(answer))
        except TimeoutError:
            return _plain(HTTPStatus.GATEWAY_TIMEOUT, f"this page takes more than {TIME_LIMIT_MS} ms now")
        except Exception:
            # A fault in one page must not cost the others; the trace goes to the log, not to the peer.
            log.exception("page %s failed", request.path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "this page failed; the log says why")

    async def _for_peer(self, work: Coroutine[Any, Any, Result]) -> Result:
        """`_in_time`, for work that the peer is waited for: it may be cut off to make room."""
        task = asyncio.current_task()
        if task is None or task not in self._open:
            return await self._in_time(work)
        self._open[task] = True
        try:
            return await self._in_time(work)
        finally:
            if task in self._open:
                self._open[task] = False

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


def _methods(page: Page | Action) -> tuple[str, ...]:
    return ("POST",) if isinstance(page, Action) else ("GET", "HEAD")


def _peer(writer: asyncio.StreamWriter) -> int:
    """User id of the peer of a unix socket; NOBODY for any other."""
    bound = writer.get_extra_info("socket")
    if bound is None:
        return NOBODY
    with socket.socket(fileno=os.dup(bound.fileno())) as own:
        return peer_uid(own)


def parse_request(head: bytes) -> Request | None:
    """The request whose line and fields `head` holds; None when it is no HTTP/1 request."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[0].isalpha():
        return None
    fields: dict[str, list[str]] = {}
    for name, value in _FIELD.findall(b"\r\n" + rest):
        fields.setdefault(name.decode().lower(), []).append(value.decode("latin-1").strip())
    hosts = fields.get("host", [])
    # RFC 9112, 3.2: exactly one from HTTP/1.1 on.
    if len(hosts) > 1 or (not hosts and words[2] != "HTTP/1.0"):
        return None
    # RFC 9112, 3.2.2: a target in absolute form, as proxies get it; its host counts, not the field.
    absolute = _ABSOLUTE.match(words[1])
    if absolute is not None:
        hosts = [absolute[1]]
    path, _, query = words[1][absolute.end() if absolute else 0 :].partition("?")
    return Request(
        method=words[0],
        path=path or "/",
        query=query,
        accept=", ".join(fields.get("accept", [])),
        host=hosts[0] if hosts else None,
        length=_length(fields),
    )


def _length(fields: Mapping[str, list[str]]) -> int:
    lengths = fields.get("content-length", ["0"])
    if "transfer-encoding" in fields or len(lengths) > 1 or not re.fullmatch("[0-9]{1,9}", lengths[0]):
        return -1
    return int(lengths[0])


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
    if answer.allow:
        fields["Allow"] = answer.allow
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    return head.encode("latin-1") + (b"" if head_only else answer.body)
