"""What is followed live: the browser itself follows the API's streams; these pages have form and table."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.core.events import Verb
from mqcd.page.ui.forms import asked, link
from mqcd.page.ui.templates import render


async def _events(request: Request) -> Response:
    form = asked(request)
    chosen = {name: form.get(name) for name in ("verb", "domain")}
    verbs = [verb.value for verb in Verb]
    return render("events.html", request, verbs=verbs, stream=link("/v1/events", chosen), chosen=chosen)


async def _trace(request: Request) -> Response:
    sought = asked(request).get("q").strip()
    return render("trace.html", request, sought=sought, stream=link("/v1/trace", {"q": sought}))


ROUTES = (Route("/events", _events), Route("/events/trace", _trace))
