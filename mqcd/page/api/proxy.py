"""Passes the calls of the API on to the control socket, and its answers back.

What was checked is what is asked: the path is encoded anew from the one that the role was looked up for.
Answers pass piece by piece, and so do large messages that are submitted: none is held. A refusal of the
server has the form that all refusals have here (RFC 9457).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mqcd.page.access.gate import caller_of
from mqcd.page.access.tokens import Role
from mqcd.page.api.calls import DESCRIPTION, Call, Calls
from mqcd.page.bounds import Refused, refusal
from mqcd.page.client import Client, Question, ServerDown, Stream

MOST_LIVE = 3
"""Live answers (events, a trace) at once: each holds one of the few connections of the control socket."""
_MOST_REASON = 16_384
_LARGE = 65_536
"""Octets of a body above which it is passed on as it comes."""
_STATUS = re.compile(r"\A[45][0-9]{2} [A-Z][A-Za-z -]*: ")


class Proxy:
    """An ASGI application."""

    def __init__(self, client: Client, calls: Calls, ended: asyncio.Event) -> None:
        """`ended` ends live answers."""
        self._client = client
        self._ended = ended
        self._calls = calls
        self._live = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        request = Request(scope, receive)
        path, method = request.scope["path"], request.method
        offered = await self._calls.of(path)
        if not offered:
            raise Refused(404, f"no such call; GET {DESCRIPTION} lists them")
        if method not in offered:
            allowed = ", ".join(sorted(offered))
            raise Refused(405, f"only {allowed}", allowed)
        call = offered[method]
        if not caller_of(request).may(call.role):
            # The list may be newer than the one that the gate looked at.
            raise Refused(403, f"this token has not the role {call.role.value}")
        live = call.live
        if live and self._live >= MOST_LIVE:
            raise Refused(503, f"{MOST_LIVE} others follow live events already; try again later")
        self._live += live
        try:
            async with self._client.stream(await _question(request, call)) as stream:
                answer = await _answer(stream, path, self._ended if live else None)
                await answer(scope, receive, send)
        finally:
            self._live -= live


async def _question(request: Request, call: Call) -> Question:
    """A short body is read first: who sends it slowly keeps nobody from asking."""
    length = request.headers.get("content-length", "")
    changes = request.method == "POST"
    if changes and not length.isdigit():
        raise Refused(411, "say the length of the body by Content-Length")
    large = changes and int(length) > _LARGE
    body = await request.body() if changes and not large else b""
    return Question(
        method=request.method,
        path=quote(request.scope["path"]),
        query=request.scope["query_string"].decode("latin-1"),
        body=body,
        upload=request.stream() if large else None,
        length=int(length) if changes else 0,
        content_type=request.headers.get("content-type", ""),
        fields={name: request.headers[name] for name in call.headers if name in request.headers},
        author=caller_of(request).author,
        live=call.live,
        mail=call.role is Role.INJECT,
        searches=call.searches or _counts(body),
    )


def _counts(body: bytes) -> bool:
    """Whether a call only asks what it would change, for which the server looks through the whole queue."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        # The server says what is wrong with it.
        return False
    return isinstance(fields, dict) and fields.get("dry_run") is True


async def _answer(stream: Stream, path: str, ended: asyncio.Event | None) -> Response:
    if stream.status >= HTTPStatus.BAD_REQUEST:
        return refusal(path, stream.status, await _reason(stream.pieces))
    pieces = stream.pieces if ended is None else _until(ended, stream.pieces)
    return StreamingResponse(pieces, stream.status, media_type=stream.content_type or None)


async def _reason(pieces: AsyncIterator[bytes]) -> str:
    """Why the server refuses, without the status that its text may begin with."""
    text = b""
    async for piece in pieces:
        text = (text + piece)[:_MOST_REASON]
    return _STATUS.sub("", text.decode("utf-8", "replace").strip())


async def _until(ended: asyncio.Event, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A live answer has no end of its own: it ends with the server, or with this process."""
    ending = asyncio.ensure_future(ended.wait())
    try:
        while not ended.is_set():
            coming = asyncio.ensure_future(anext(pieces, b""))
            try:
                await asyncio.wait([coming, ending], return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
            with suppress(ServerDown, asyncio.CancelledError):
                if piece := await coming:
                    yield piece
                    continue
            return
    finally:
        ending.cancel()
