"""The application: the routes of page and API, behind the checks that every request passes."""

from __future__ import annotations

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from mqcd.page import api, ui
from mqcd.page.access.gate import STATIC, Gate
from mqcd.page.bounds import API, Bounds, refusal
from mqcd.page.parts import Parts


def make_app(parts: Parts) -> Starlette:
    """From these parts; nothing is asked or opened yet."""
    calls = api.Calls(parts.client, parts.clock)
    app = Starlette(
        routes=[*api.routes(parts, calls), *ui.routes()],
        middleware=[
            Middleware(Bounds, hosts=parts.terms.hosts),
            Middleware(Gate, access=parts.access, role_of=calls.role_of),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.state.parts = parts
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """What no route takes."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.scope["path"]
    if error.status_code == HTTPStatus.NOT_FOUND and not path.startswith((API, STATIC)):
        return ui.nothing_here(request)
    answer = refusal(path, error.status_code, error.detail)
    answer.headers.update(error.headers or {})
    return answer
