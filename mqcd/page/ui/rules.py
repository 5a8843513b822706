"""Standing rules: listed, counted before they are added, added, cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.page.access.gate import caller_of
from mqcd.page.client import Client
from mqcd.page.ui.asking import Said, at_once, get, post
from mqcd.page.ui.forms import Form, asked, onwards, posted
from mqcd.page.ui.templates import render

RULES, CANCEL = "/v1/rules", "/v1/rules/cancel"
ACTIONS: Mapping[str, str] = {
    "hold": "keeps mail in the queue until it is released",
    "suspend": "lets mail wait untried",
    "slow": "tries it over fewer connections, or at a lower rate",
    "bounce": "returns it to its senders",
}
"""What a rule may do."""
_TEXTS = ("action", "where", "name", "reason", "for", "rate")
_BACK = ("/rules", "/destinations")


class Rules:
    """Its pages."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def routes(self) -> list[BaseRoute]:
        """List and form, count, add, cancel."""
        return [
            Route("/rules", self._page, methods=["GET"]),
            Route("/rules", self._add, methods=["POST"]),
            Route("/rules/cancel", self._cancel, methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        return await self._shown(request, asked(request))

    async def _shown(
        self, request: Request, form: Form, trouble: str = "", counted: Said | None = None
    ) -> Response:
        listed = await at_once(get(self._client, RULES), 2) or Said(trouble="The server is slow to answer.")
        given = {name: form.get(name) for name in (*_TEXTS, "connections")}
        status = HTTPStatus.BAD_REQUEST if trouble else HTTPStatus.OK
        return render(
            "rules.html",
            request,
            status=status,
            listed=listed,
            actions=ACTIONS,
            given=given,
            report=form.get("report", "Y") == "Y",
            trouble=trouble,
            counted=counted,
            where=given["where"],
            wrong=None,
        )

    async def _add(self, request: Request) -> Response:
        form = await posted(request)
        fields = _fields(form)
        counts = form.get("do") == "count"
        said = await post(
            self._client,
            RULES,
            {**fields, **({"dry_run": True} if counts else {})},
            caller_of(request).author,
        )
        if said.value is None:
            return await self._shown(request, form, said.trouble)
        if counts:
            return await self._shown(request, form, counted=said)
        return onwards("/rules")

    async def _cancel(self, request: Request) -> Response:
        form = await posted(request)
        said = await post(self._client, CANCEL, {"id": form.get("id")}, caller_of(request).author)
        back = form.get("back") if form.get("back") in _BACK else "/rules"
        if said.value is None:
            return render(
                "refused.html", request, status=HTTPStatus.BAD_REQUEST, text=said.trouble, back=back
            )
        done = said.value if isinstance(said.value, dict) else {}
        if not done.get("undo"):
            return onwards(back)
        return render(
            "cancelled.html", request, id=form.get("id"), stays=done.get("stays"), undo=done["undo"]
        )


def _fields(form: Form) -> dict[str, Any]:
    """The rule that a form describes, as the server takes it: wrong values are for it to name."""
    fields: dict[str, Any] = {name: form.get(name) for name in _TEXTS if form.get(name)}
    if connections := form.get("connections"):
        fields["connections"] = int(connections) if connections.isdecimal() else connections
    if form.get("action") == "bounce":
        fields["report"] = form.get("report") == "Y"
    return fields
