"""Logging in by a token, and out."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mqcd.page.access.access import Access
from mqcd.page.access.gate import LOGIN, LOGOUT
from mqcd.page.bounds import Refused
from mqcd.page.ui.templates import render

_MOST = 4096
"""Octets of the form."""


def login_routes(access: Access) -> list[BaseRoute]:
    """Form, login, logout."""

    async def form(request: Request) -> Response:
        return render("login.html", request, error="")

    async def login(request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST:
                raise Refused(413, f"more than {_MOST} octets")
        secret = parse_qs(body.decode("latin-1")).get("token", [""])[0]
        client = request.client.host if request.client else ""
        try:
            key = access.login(secret, client)
        except Refused as refused:
            return render("login.html", request, status=refused.status, error=str(refused))
        return RedirectResponse("/", 303, {"Set-Cookie": access.set_cookie(key)})

    async def logout(request: Request) -> Response:
        access.logout(request.cookies)
        return RedirectResponse(LOGIN, 303, {"Set-Cookie": access.set_cookie("")})

    return [
        Route(LOGIN, form, methods=["GET"]),
        Route(LOGIN, login, methods=["POST"]),
        Route(LOGOUT, logout, methods=["POST"]),
    ]
