"""Which path shows what. A server that does not answer is shown as that, never as an empty queue."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from mqcd.page.access.gate import STATIC
from mqcd.page.parts import Parts
from mqcd.page.ui.advice import AdvicePages
from mqcd.page.ui.ages import Ages
from mqcd.page.ui.destinations import Destinations
from mqcd.page.ui.events import event_routes
from mqcd.page.ui.login import login_routes
from mqcd.page.ui.overview import Overview
from mqcd.page.ui.queue.acting import Acting
from mqcd.page.ui.queue.batches import BatchPages
from mqcd.page.ui.queue.browser import Browser
from mqcd.page.ui.queue.message import Messages
from mqcd.page.ui.rules import Rules
from mqcd.page.ui.server import ServerPages
from mqcd.page.ui.templates import STATIC_FILES, render


def routes(parts: Parts) -> list[BaseRoute]:
    """All of the page."""
    return [
        *Overview(parts.client, parts.recorder).routes(),
        *Ages(parts.client, parts.clock).routes(),
        *Browser(parts.client, parts.clock).routes(),
        *Acting(parts.client, parts.clock).routes(),
        *BatchPages(parts.client, parts.clock).routes(),
        *Messages(parts.client, parts.clock).routes(),
        *Destinations(parts.client).routes(),
        *Rules(parts.client).routes(),
        *AdvicePages(parts.terms.advice, parts.clock).routes(),
        *ServerPages(parts.client, parts.clock).routes(),
        *event_routes(),
        *login_routes(parts.access),
        Mount(STATIC, StaticFiles(directory=STATIC_FILES)),
    ]


def nothing_here(request: Request) -> Response:
    """The answer to an address that names nothing."""
    text = "There is no such page."
    return render("refused.html", request, status=HTTPStatus.NOT_FOUND, text=text, back="/")
