"""Actions that were asked for: how far each is, and how it is undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.parts import parts_of
from mqcd.page.ui.asking import AT_ONCE_S, Said, at_once, get, post
from mqcd.page.ui.forms import onwards, posted
from mqcd.page.ui.queue.actions import ACTIONS
from mqcd.page.ui.templates import refused, render

_PATH = "/v1/batches"


async def _list(request: Request) -> Response:
    said = await at_once(get(request, _PATH), 10 * AT_ONCE_S) or Said(trouble="It is slow to answer.")
    rows = [_row(row) for row in said.rows]
    return render("batches.html", request, said=said, rows=rows, now=parts_of(request).clock.now())


async def _one(request: Request) -> Response:
    return await _shown(request, "batch.html")


async def _progress(request: Request) -> Response:
    return await _shown(request, "parts/progress.html")


async def _shown(request: Request, template: str) -> Response:
    name = request.path_params["id"]
    said = await get(request, _PATH, {"id": name})
    row = _row(said.value) if isinstance(said.value, dict) else None
    status = 200 if row is not None else 404 if said.missing else 503
    return render(template, request, status=status, id=name, trouble=said.trouble, row=row)


def _row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the words for its action, and whether it can be undone now."""
    action = str(row.get("action") or str(row.get("batch")).partition("-")[0])
    act = ACTIONS.get(action)
    undo = row.get("undo", action != "undo")
    selection = row.get("selection") or {}
    fields = {"by": "", "reason": "", "at": None, "undo_until": None, **row}
    return {
        **fields,
        "action": action,
        "done_word": act.done if act else "restored",
        "undo": bool(undo and row.get("done") and row.get("changed")),
        "where": selection.get("where") or "",
    }


async def _undo(request: Request) -> Response:
    name = (await posted(request)).get("batch")
    said = await post(request, "/v1/batch", {"action": "undo", "target": name, "selection": {}})
    if said.value is None:
        return refused(request, said.trouble, "/batches")
    return onwards(f"/batches/{said.value['batch']}")


ROUTES = (
    Route("/batches", _list),
    Route("/batches/undo", _undo, methods=["POST"]),
    Route("/batches/{id}", _one),
    Route("/batches/{id}/progress", _progress),
)
