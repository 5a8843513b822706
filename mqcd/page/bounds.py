"""What holds for every request, before a route is looked for: an ASGI middleware.

* Host: a request under a name that this machine does not go by gets 421, as at the ops listener (DNS
  rebinding).
* Size and time: a body of more than MAX_BODY octets gets 413; one that takes longer than BODY_S gets 408; a
  peer that takes none of the answer for SEND_S is cut off.
* Every answer forbids a browser to frame it, to run anything inline or from elsewhere, and to keep it.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqcd.page.client import Crowded, ServerDown
from mqcd.page.terms import Hosts

API = "/v1/"
"""Where the API's paths begin."""
PROBLEM = "application/problem+json"
MAX_BODY = 64 << 20
"""Octets; a message that is submitted is the largest."""
BODY_S = 60.0
LEAST_RATE = 16_384
"""Octets a second, which a large body has time for besides."""
SEND_S = 30.0
AGAIN_S = 60
"""When a request may be sent again for which there is no room."""

POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)
_FIELDS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would make browsers send `Origin: null` with the page's own forms (Fetch, 3.2).
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """Why a request is not answered otherwise."""

    def __init__(self, status: int, text: str, allow: str = "") -> None:
        """`allow`: with 405, the methods that there are."""
        super().__init__(text)
        self.status = status
        self.allow = allow


def refusal(path: str, status: int, text: str) -> Response:
    """What is answered to a request that is refused: to programs as RFC 9457 has it, to people as text."""
    fields = {"Connection": "close"}
    if status == HTTPStatus.UNAUTHORIZED:
        fields["WWW-Authenticate"] = 'Bearer realm="mqcd"'
    if not path.startswith(API):
        return PlainTextResponse(f"{text}\n", status, fields)
    problem = {"type": "about:blank", "status": status, "title": HTTPStatus(status).phrase, "detail": text}
    return JSONResponse(problem, status, fields, media_type=PROBLEM)


async def read_body(request: Request, most: int) -> bytes:
    """The whole body, of at most so many octets. Raises Refused."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} octets")
    return body


class Bounds:
    """Around the application."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                self._dress(message)
            async with asyncio.timeout(SEND_S):
                await send(message)

        try:
            self._check(scope)
            await self._app(scope, _Body(scope, receive), answer)
        except ClientDisconnect:
            # Its end, and no fault.
            return
        except (Refused, ServerDown) as error:
            if began:
                raise
            status = error.status if isinstance(error, Refused) else HTTPStatus.SERVICE_UNAVAILABLE
            response = refusal(scope["path"], status, str(error))
            if isinstance(error, Refused) and error.allow:
                response.headers["Allow"] = error.allow
            if isinstance(error, Crowded):
                response.headers["Retry-After"] = str(AGAIN_S)
            await response(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # RFC 9112, 6.1: one of two ways to smuggle a request past a proxy.
            raise Refused(400, "give the body's length in one way")
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.admits(hosts[0]):
            text = "this server does not go by that name; ops/hosts names others that it answers under"
            raise Refused(421, text)

    def _dress(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _FIELDS.items():
            headers[name] = value
        headers.setdefault("Cache-Control", "no-store")


class _Body:
    """A request's body as the application receives it, within its bounds."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self._ended = False
        said = Headers(scope=scope).get("content-length", "0")
        length = int(said) if said.isdigit() else 0
        if length > MAX_BODY:
            raise Refused(413, f"more than {MAX_BODY} octets")
        self._until = asyncio.get_running_loop().time() + BODY_S + length / LEAST_RATE

    async def __call__(self) -> Message:
        if self._ended:
            # What comes now is the peer's going, which may take long.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "the request took too long") from None
        self._size += len(message.get("body", b""))
        if self._size > MAX_BODY:
            raise Refused(413, f"more than {MAX_BODY} octets")
        self._ended = not message.get("more_body", False)
        return message
