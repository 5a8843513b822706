"""The server itself: switches, connections, the level of its log, what is stuck, and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.ports import Clock
from mqcd.page.access.gate import caller_of
from mqcd.page.client import Client, ServerDown
from mqcd.page.ui.asking import Said, get, post
from mqcd.page.ui.forms import asked, onwards, posted
from mqcd.page.ui.templates import render

PARTS: Mapping[str, str] = {
    "accept": "Clients are asked to try later (4xx); nothing is lost.",
    "deliver": "Mail waits in the queue; no attempt is made.",
    "report": "Bounces wait; no reports are made.",
}
"""What a pause of each part means."""
LEVELS = ("debug", "info", "warning", "error")


class ServerPages:
    """Its pages."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """The page, its parts, its switches, and the settings."""
        return [
            Route("/server", self._page),
            Route("/server/state", self._state),
            Route("/server/drain", self._drain),
            Route("/server/connections", self._connections),
            Route("/server/pause", self._pause, methods=["POST"]),
            Route("/server/loglevel", self._level, methods=["POST"]),
            Route("/settings", self._settings),
        ]

    async def _page(self, request: Request) -> Response:
        return render("server.html", request)

    async def _state(self, request: Request) -> Response:
        state, level, stuck = [
            await get(self._client, path) for path in ("/v1/state", "/v1/loglevel", "/v1/stuck")
        ]
        return render(
            "parts/state.html",
            request,
            ready=await self._ready(),
            state=state,
            parts=parts(state),
            level=level,
            levels=LEVELS,
            stuck=stuck,
            now=self._clock.now(),
        )

    async def _drain(self, request: Request) -> Response:
        return render("parts/drain.html", request, state=await get(self._client, "/v1/state"))

    async def _ready(self) -> tuple[bool, str]:
        try:
            answer = await self._client.get("/readyz")
        except ServerDown as down:
            return False, str(down)
        return answer.good, answer.text

    async def _connections(self, request: Request) -> Response:
        said = await get(self._client, "/v1/connections")
        sides = {side: [row for row in said.rows if row.get("side") == side] for side in ("in", "out")}
        return render("parts/connections.html", request, said=said, sides=sides)

    async def _pause(self, request: Request) -> Response:
        form = await posted(request)
        fields = {
            "part": form.get("part"),
            "paused": form.get("paused") == "Y",
            "reason": form.get("reason"),
        }
        return await self._changed(request, "/v1/pause", fields)

    async def _level(self, request: Request) -> Response:
        form = await posted(request)
        fields: dict[str, object] = {name: form.get(name) for name in ("level", "for") if form.get(name)}
        return await self._changed(request, "/v1/loglevel", fields)

    async def _changed(self, request: Request, path: str, fields: Mapping[str, object]) -> Response:
        said = await post(self._client, path, fields, caller_of(request).author)
        if said.trouble:
            status = HTTPStatus.BAD_REQUEST
            return render("refused.html", request, status=status, text=said.trouble, back="/server")
        return onwards("/server")

    async def _settings(self, request: Request) -> Response:
        form = asked(request)
        said = await get(self._client, "/v1/settings")
        sought, changed = form.get("find").lower(), form.get("changed") == "Y"
        rows = [
            row
            for row in said.rows
            if (not changed or row["value"] != row["default"])
            and sought in f"{row['path']} {row.get('gloss', '')} {row['value']}".lower()
        ]
        return render("settings.html", request, said=said, rows=rows, find=form.get("find"), changed=changed)


def parts(state: Said) -> Sequence[Mapping[str, Any]]:
    """The parts of the server, each with what a pause of it means."""
    value = state.value
    rows = value.get("parts", ()) if isinstance(value, dict) else value or ()
    blank = {"paused": False, "by": None, "since": None, "reason": None}
    return [
        {**blank, **row, "gloss": PARTS.get(str(row.get("part")), "")}
        for row in rows
        if isinstance(row, dict)
    ]
