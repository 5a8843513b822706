"""The server itself: switches, connections, the level of its log, what is stuck, and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.client import Question, ServerDown
from mqcd.page.parts import parts_of
from mqcd.page.ui.asking import Said, get, post
from mqcd.page.ui.forms import asked, onwards, posted
from mqcd.page.ui.templates import refused, render

PARTS: Mapping[str, str] = {
    "accept": "Clients are asked to try later (4xx); nothing is lost.",
    "deliver": "Mail waits in the queue; no attempt is made.",
    "report": "Bounces wait; no reports are made.",
}
"""What a pause of each part means."""
LEVELS = ("debug", "info", "warning", "error")


async def _page(request: Request) -> Response:
    return render("server.html", request)


async def _state(request: Request) -> Response:
    state, level, stuck = [await get(request, path) for path in ("/v1/state", "/v1/loglevel", "/v1/stuck")]
    return render(
        "parts/state.html",
        request,
        ready=await _ready(request),
        state=state,
        parts=parts(state),
        level=level,
        levels=LEVELS,
        stuck=stuck,
        now=parts_of(request).clock.now(),
    )


async def _drain(request: Request) -> Response:
    return render("parts/drain.html", request, state=await get(request, "/v1/state"))


async def _ready(request: Request) -> tuple[bool, str]:
    try:
        answer = await parts_of(request).client.ask(Question.get("/readyz"))
    except ServerDown as down:
        return False, str(down)
    return answer.good, answer.text


async def _connections(request: Request) -> Response:
    said = await get(request, "/v1/connections")
    sides = {side: [row for row in said.rows if row.get("side") == side] for side in ("in", "out")}
    return render("parts/connections.html", request, said=said, sides=sides)


async def _pause(request: Request) -> Response:
    form = await posted(request)
    fields = {
        "part": form.get("part"),
        "paused": form.get("paused") == "Y",
        "reason": form.get("reason"),
    }
    return await _changed(request, "/v1/pause", fields)


async def _level(request: Request) -> Response:
    form = await posted(request)
    fields: dict[str, object] = {name: form.get(name) for name in ("level", "for") if form.get(name)}
    return await _changed(request, "/v1/loglevel", fields)


async def _changed(request: Request, path: str, fields: Mapping[str, object]) -> Response:
    said = await post(request, path, fields)
    return refused(request, said.trouble, "/server") if said.trouble else onwards("/server")


async def _settings(request: Request) -> Response:
    form = asked(request)
    said = await get(request, "/v1/settings")
    sought, changed = form.get("find").lower(), form.get("changed") == "Y"
    rows = [
        row
        for row in said.rows
        if (not changed or row["value"] != row["default"])
        and sought in f"{row['path']} {row.get('gloss', '')} {row['value']}".lower()
    ]
    return render("settings.html", request, said=said, rows=rows, find=form.get("find"), changed=changed)


ROUTES = (
    Route("/server", _page),
    Route("/server/state", _state),
    Route("/server/drain", _drain),
    Route("/server/connections", _connections),
    Route("/server/pause", _pause, methods=["POST"]),
    Route("/server/loglevel", _level, methods=["POST"]),
    Route("/settings", _settings),
)


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
