"""Which path shows what. A server that does not answer is shown as that, never as an empty queue."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mqcd.page.access.gate import STATIC
from mqcd.page.client import ServerDown
from mqcd.page.parts import Parts
from mqcd.page.ui.login import login_routes
from mqcd.page.ui.templates import STATIC_FILES, render


def routes(parts: Parts) -> list[BaseRoute]:
    """All of the page."""

    async def overview(request: Request) -> Response:
        try:
            ready = await parts.client.get("/readyz")
        except ServerDown as down:
            return render("overview.html", request, status=503, state="does not answer", reason=str(down))
        state = "is ready" if ready.good else "is not ready"
        return render("overview.html", request, state=state, reason="" if ready.good else ready.text)

    return [
        Route("/", overview),
        *login_routes(parts.access),
        Mount(STATIC, StaticFiles(directory=STATIC_FILES)),
    ]
