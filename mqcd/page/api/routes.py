"""The routes of the API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mqcd.page.api.calls import DESCRIPTION, Calls
from mqcd.page.api.proxy import Proxy
from mqcd.page.bounds import API
from mqcd.page.parts import Parts


def routes(parts: Parts, calls: Calls) -> list[BaseRoute]:
    """All of it."""

    async def describe(_: Request) -> Response:
        return JSONResponse(await calls.document())

    proxy = Proxy(parts.client, calls, parts.ended)
    return [Route(DESCRIPTION, describe), Route(f"{API}{{rest:path}}", proxy, include_in_schema=False)]
