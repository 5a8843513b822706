"""Live events: the browser itself follows the API's stream; this page has its filter and its table."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.events import Verb
from mqcd.page.ui.forms import asked, link
from mqcd.page.ui.templates import render


async def _page(request: Request) -> Response:
    form = asked(request)
    chosen = {name: form.get(name) for name in ("verb", "domain")}
    verbs = [verb.value for verb in Verb]
    return render("events.html", request, verbs=verbs, stream=link("/v1/events", chosen), chosen=chosen)


def event_routes() -> list[BaseRoute]:
    """The page."""
    return [Route("/events", _page)]
