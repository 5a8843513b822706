"""Actions that were asked for: how far each is, and how it is undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.ports import Clock
from mqcd.page.access.gate import caller_of
from mqcd.page.client import Client
from mqcd.page.ui.asking import AT_ONCE_S, Said, at_once, get, post
from mqcd.page.ui.forms import onwards, posted
from mqcd.page.ui.queue.actions import ACTIONS
from mqcd.page.ui.templates import render

_PATH = "/v1/batches"


class BatchPages:
    """Its pages."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """List, one, its progress, undo."""
        return [
            Route("/batches", self._list),
            Route("/batches/undo", self._undo, methods=["POST"]),
            Route("/batches/{id}", self._one),
            Route("/batches/{id}/progress", self._progress),
        ]

    async def _list(self, request: Request) -> Response:
        said = await at_once(get(self._client, _PATH), 10 * AT_ONCE_S) or Said(
            trouble="It is slow to answer."
        )
        rows = [self._row(row) for row in said.rows]
        return render("batches.html", request, said=said, rows=rows, now=self._clock.now())

    async def _one(self, request: Request) -> Response:
        return await self._shown(request, "batch.html")

    async def _progress(self, request: Request) -> Response:
        return await self._shown(request, "parts/progress.html")

    async def _shown(self, request: Request, template: str) -> Response:
        name = request.path_params["id"]
        said = await get(self._client, _PATH, {"id": name})
        row = self._row(said.value) if isinstance(said.value, dict) else None
        status = 200 if row is not None else 404 if said.missing else 503
        return render(template, request, status=status, id=name, trouble=said.trouble, row=row)

    def _row(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
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

    async def _undo(self, request: Request) -> Response:
        name = (await posted(request)).get("batch")
        fields = {"action": "undo", "target": name, "selection": {}}
        said = await post(self._client, "/v1/batch", fields, caller_of(request).author)
        if said.value is None:
            return render("refused.html", request, status=400, text=said.trouble, back="/batches")
        return onwards(f"/batches/{said.value['batch']}")
