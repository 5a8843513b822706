"""Logging in by a token, and out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mqcd.page.access.gate import LOGIN, LOGOUT
from mqcd.page.bounds import Refused
from mqcd.page.parts import parts_of
from mqcd.page.ui.forms import posted
from mqcd.page.ui.templates import render

_MOST = 4096
"""Octets of the form."""


async def _form(request: Request) -> Response:
    return render("login.html", request, error="")


async def _login(request: Request) -> Response:
    access = parts_of(request).access
    form = await posted(request, _MOST)
    try:
        key = access.login(form.get("token"), request.client.host if request.client else "")
    except Refused as refused:
        return render("login.html", request, status=refused.status, error=str(refused))
    return RedirectResponse("/", 303, {"Set-Cookie": access.set_cookie(key)})


async def _logout(request: Request) -> Response:
    access = parts_of(request).access
    access.logout(request.cookies)
    return RedirectResponse(LOGIN, 303, {"Set-Cookie": access.set_cookie("")})


ROUTES = (
    Route(LOGIN, _form, methods=["GET"]),
    Route(LOGIN, _login, methods=["POST"]),
    Route(LOGOUT, _logout, methods=["POST"]),
)
