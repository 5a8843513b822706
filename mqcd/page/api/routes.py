"""The routes of the API."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from mqcd.page.api.proxy import Proxy
from mqcd.page.bounds import API
from mqcd.page.parts import Parts


def routes(parts: Parts) -> list[BaseRoute]:
    """All of it."""
    return [Route(f"{API}{{rest:path}}", Proxy(parts.client), include_in_schema=False)]
