"""The application: the routes of page and API, behind the checks that every request passes."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware

from mqcd.page import api, ui
from mqcd.page.access.gate import Gate
from mqcd.page.bounds import Bounds
from mqcd.page.parts import Parts


def make_app(parts: Parts) -> Starlette:
    """From these parts; nothing is asked or opened yet."""
    calls = api.Calls(parts.client, parts.clock)
    return Starlette(
        routes=[*api.routes(parts, calls), *ui.routes(parts)],
        middleware=[
            Middleware(Bounds, hosts=parts.terms.hosts),
            Middleware(Gate, access=parts.access, role_of=calls.role_of),
        ],
    )
