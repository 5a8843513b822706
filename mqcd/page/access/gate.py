"""The gate before all routes: an ASGI middleware that finds out who asks, and turns away who may not.

It leaves the `Caller` in the request's state, where `caller_of` finds it. Against other sites' pages in the
same browser: a request for a change whose Origin is another site's is refused, as is one of a session without
its CSRF token, in the field X-CSRF-Token or in the form's field `csrf`. A token in an address is refused, so
that nobody makes a habit of it: addresses stand in logs, histories and Referer fields.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mqcd.page.access.access import Access, Caller
from mqcd.page.access.tokens import SHAPE, Role
from mqcd.page.bounds import API, Refused, read_body

LOGIN, LOGOUT, STATIC = "/login", "/logout", "/static"
FORM = "application/x-www-form-urlencoded"
MAX_FORM = 1 << 20
_SAFE = ("GET", "HEAD", "OPTIONS")
_SIMPLE = ("", FORM, "multipart/form-data", "text/plain")
"""What a browser sends for any site's page without asking (Fetch, "CORS-safelisted")."""

RoleOf = Callable[[str, str], Awaitable[Role | None]]
"""What a method and a path of the API need; None: they are not offered."""


def caller_of(request: Request) -> Caller:
    """Who asks, in a route behind the gate."""
    found: Caller = request.scope["state"]["caller"]
    return found


class Gate:
    """Around the routes."""

    def __init__(self, app: ASGIApp, *, access: Access, role_of: RoleOf) -> None:
        self._app = app
        self._access = access
        self._role_of = role_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        _refuse_secrets(scope)
        changes = request.method not in _SAFE
        if changes:
            _refuse_strangers(request)
        if request.scope["path"] == LOGIN or request.scope["path"].startswith(f"{STATIC}/"):
            await self._app(scope, receive, send)
            return
        caller, cookie = self._caller(request)
        if caller is None:
            await _to_login(request)(scope, receive, send)
            return
        await self._check_role(request, caller)
        if changes and caller.csrf:
            receive = await _check_csrf(request, caller.csrf)
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, _with_cookie(send, cookie) if cookie else send)

    def _caller(self, request: Request) -> tuple[Caller | None, str]:
        """Who asks, and a cookie to be set; None: a browser that has to log in. Raises Refused."""
        access = self._access
        if (authorization := request.headers.get("authorization")) is not None:
            return access.program(authorization, request.client.host if request.client else ""), ""
        if (caller := access.browser(request.cookies)) is not None:
            return caller, ""
        is_api = request.scope["path"].startswith(API)
        if access.open and is_api:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if request.method == "POST" and kind in _SIMPLE:
                raise Refused(415, "give the Content-Type: application/json, or message/rfc822")
            return access.anybody(), ""
        if access.open:
            key, caller = access.welcome()
            return caller, access.set_cookie(key)
        if is_api:
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN; `mqcd token add` makes one")
        return None, ""

    async def _check_role(self, request: Request, caller: Caller) -> None:
        path, method = request.scope["path"], request.method
        if path == LOGOUT:
            return
        if path.startswith(API):
            role = await self._role_of(method, path)
        else:
            role = Role.READ if method in _SAFE else Role.OPERATE
        if role is not None and not caller.may(role):
            raise Refused(403, f"this token has not the role {role.value}")


def _refuse_secrets(scope: Scope) -> None:
    address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
    if SHAPE.search(address):
        text = (
            "a token stands in the address, and so perhaps in logs: remove it, make another one, and show it"
        )
        raise Refused(400, f"{text} in the field Authorization")


def _refuse_strangers(request: Request) -> None:
    """What other sites' pages ask for. Raises Refused."""
    origin = request.headers.get("origin")
    if origin is not None and _host_of(origin) != request.headers.get("host", "").lower():
        raise Refused(403, "the request comes from another site's page")
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "the request comes from another site's page")


def _host_of(origin: str) -> str | None:
    """None: it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


async def _check_csrf(request: Request, expected: str) -> Receive:
    """Raises Refused; gives what the application is to receive the body by."""
    receive = request.receive
    shown = request.headers.get("x-csrf-token", "")
    if not shown and request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        body = await read_body(request, MAX_FORM)
        receive = _once_more(body, receive)
        shown = parse_qs(body.decode("latin-1")).get("csrf", [""])[0]
    if not secrets.compare_digest(shown.encode(), expected.encode()):
        raise Refused(403, "the form is too old: load the page again")
    return receive


def _once_more(body: bytes, receive: Receive) -> Receive:
    """A body that was read, and what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _with_cookie(send: Send, cookie: str) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            fields: list[Any] = [*message.get("headers", ()), (b"set-cookie", cookie.encode())]
            message = {**message, "headers": fields}
        await send(message)

    return answer


def _to_login(request: Request) -> Response:
    """Where a browser logs in. What asks for a piece of a page (htmx) is to load the login as a whole."""
    if Headers(scope=request.scope).get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": LOGIN})
    return RedirectResponse(LOGIN, 303)
