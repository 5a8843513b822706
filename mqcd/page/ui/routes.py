"""Which path shows what. A server that does not answer is shown as that, never as an empty queue."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from mqcd.page.access.gate import STATIC
from mqcd.page.ui import advice, ages, destinations, events, login, overview, rules, server
from mqcd.page.ui.queue import acting, batches, browser, message
from mqcd.page.ui.templates import STATIC_FILES, refused

_PAGES = (overview, acting, batches, message, destinations, rules, advice, server, events, login)


def routes() -> list[BaseRoute]:
    """All of the page."""
    return [
        *(route for page in _PAGES for route in page.ROUTES),
        *ages.routes(),
        *browser.routes(),
        Mount(STATIC, StaticFiles(directory=STATIC_FILES)),
    ]


def nothing_here(request: Request) -> Response:
    """The answer to an address that names nothing."""
    return refused(request, "There is no such page.", "/", HTTPStatus.NOT_FOUND)
