"""The application: the routes of page and API, behind the checks that every request passes."""

from __future__ import annotations

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mqcd.page import ui
from mqcd.page.access.gate import STATIC, Gate
from mqcd.page.api.calls import DESCRIPTION, Calls
from mqcd.page.api.proxy import Proxy
from mqcd.page.bounds import API, Bounds, refusal
from mqcd.page.parts import Parts


def make_app(parts: Parts) -> Starlette:
    """From these parts; nothing is asked or opened yet."""
    calls = Calls(parts.client, parts.clock)
    proxy = Proxy(parts.client, calls, parts.ended)

    async def describe(_: Request) -> Response:
        return JSONResponse(await calls.document())

    app = Starlette(
        routes=[Route(DESCRIPTION, describe), Route(f"{API}{{rest:path}}", proxy), *ui.routes()],
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
