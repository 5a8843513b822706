"""Standing rules: listed, counted before they are added, added, cancelled."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.ui.asking import Said, at_once, get, post
from mqcd.page.ui.forms import Form, asked, onwards, posted
from mqcd.page.ui.templates import refused, render

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
_MOST_DIGITS = 16
"""Of a number; Python may refuse to read a longer one."""


async def _page(request: Request) -> Response:
    return await _shown(request, asked(request))


async def _shown(request: Request, form: Form, trouble: str = "", counted: Said | None = None) -> Response:
    listed = await at_once(get(request, RULES), 2) or Said(trouble="The server is slow to answer.")
    given = {name: form.get(name) for name in (*_TEXTS, "connections")}
    return render(
        "rules.html",
        request,
        status=HTTPStatus.BAD_REQUEST if trouble else HTTPStatus.OK,
        listed=listed,
        actions=ACTIONS,
        given=given,
        report=form.get("report", "Y") == "Y",
        trouble=trouble,
        counted=counted,
        where=given["where"],
        wrong=None,
    )


async def _add(request: Request) -> Response:
    form = await posted(request)
    counts = form.get("do") == "count"
    said = await post(request, RULES, _fields(form) | ({"dry_run": True} if counts else {}))
    if said.value is None:
        return await _shown(request, form, said.trouble)
    return await _shown(request, form, counted=said) if counts else onwards("/rules")


async def _cancel(request: Request) -> Response:
    form = await posted(request)
    said = await post(request, CANCEL, {"id": form.get("id")})
    back = form.get("back") if form.get("back") in _BACK else "/rules"
    if said.value is None:
        return refused(request, said.trouble, back)
    done = said.value if isinstance(said.value, dict) else {}
    if not done.get("undo"):
        return onwards(back)
    return render("cancelled.html", request, id=form.get("id"), stays=done.get("stays"), undo=done["undo"])


ROUTES = (
    Route("/rules", _page, methods=["GET"]),
    Route("/rules", _add, methods=["POST"]),
    Route("/rules/cancel", _cancel, methods=["POST"]),
)


def _fields(form: Form) -> dict[str, Any]:
    """The rule that a form describes, as the server takes it: wrong values are for it to name."""
    fields: dict[str, Any] = {name: form.get(name) for name in _TEXTS if form.get(name)}
    if connections := form.get("connections"):
        number = connections.isdecimal() and len(connections) < _MOST_DIGITS
        fields["connections"] = int(connections) if number else connections
    if form.get("action") == "bounce":
        fields["report"] = form.get("report") == "Y"
    return fields
