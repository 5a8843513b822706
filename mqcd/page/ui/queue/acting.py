"""An action over a selection: first its count and a sample, then a reason, then the action itself.

The count and the action go by the same condition at the same time (`now`), so that mail that came since is
in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.parts import parts_of
from mqcd.page.ui.asking import Said, post
from mqcd.page.ui.forms import Form, asked, link, onwards, posted
from mqcd.page.ui.queue.actions import ACTIONS, MOST_REASON, Act, BadField, details
from mqcd.page.ui.queue.conditions import of_picked, problem
from mqcd.page.ui.templates import refused, render

_BATCH = "/v1/batch"
_NO_ACTION = "There is no such action."


async def _form(request: Request) -> Response:
    form = asked(request)
    act = ACTIONS.get(form.get("action"))
    if act is None:
        return refused(request, _NO_ACTION, "/queue", HTTPStatus.NOT_FOUND)
    picked = form.get("scope") == "picked"
    if picked and not form.all("pick"):
        text = "No row is checked. Check the rows that are meant, or choose all that match."
        return refused(request, text, _back(form.get("where")))
    where = of_picked(form.all("pick")) if picked else form.get("where")
    return await _shown(request, act, where, form, parts_of(request).clock.now())


async def _shown(
    request: Request, act: Act, where: str, form: Form, now: int, wrong: Mapping[str, str] = {}
) -> Response:
    syntax = problem(where, now)
    wrong = {**wrong, **({"where": syntax.text} if syntax else {})}
    counted = None
    if form.get("wait") and not wrong:
        counted = await _counted(request, act, where, now)
    return render(
        "act.html",
        request,
        status=HTTPStatus.BAD_REQUEST if wrong else HTTPStatus.OK,
        act=act,
        where=where,
        now=now,
        wrong=wrong,
        given={name: form.get(name) for name in ("reason", "target", "delay")},
        report=form.get("report", "Y" if act.report else "") == "Y",
        counted=counted,
        query=link("", {"action": act.name, "where": where, "now": str(now)}),
        back=_back(where),
    )


async def _count(request: Request) -> Response:
    form = asked(request)
    act = ACTIONS.get(form.get("action"))
    if act is None:
        return render("parts/matched.html", request, said=Said(trouble=_NO_ACTION), act=None)
    counted = await _counted(request, act, form.get("where"), _moment(request, form))
    return render("parts/matched.html", request, said=counted, act=act)


async def _counted(request: Request, act: Act, where: str, now: int) -> Said:
    """What the action would change: `matched`, `changed`, `in_flight`, `sample`."""
    fields = {"action": act.name, "selection": _selection(where, now), "dry_run": True}
    return await post(request, _BATCH, fields)


async def _act(request: Request) -> Response:
    form = await posted(request)
    act = ACTIONS.get(form.get("action"))
    if act is None:
        return refused(request, _NO_ACTION, "/queue", HTTPStatus.NOT_FOUND)
    where, now = form.get("where"), _moment(request, form)
    try:
        order = details(act, form, parts_of(request).clock.now())
    except BadField as error:
        return await _shown(request, act, where, form, now, {error.field: str(error)})
    reason = form.get("reason")[:MOST_REASON]
    fields = {"action": act.name, "selection": _selection(where, now), "reason": reason, **order}
    said = await post(request, _BATCH, fields)
    if said.value is None:
        return await _shown(request, act, where, form, now, {"server": said.trouble})
    return onwards(f"/batches/{said.value['batch']}")


ROUTES = (
    Route("/act", _form, methods=["GET"]),
    Route("/act", _act, methods=["POST"]),
    Route("/act/count", _count),
)


def _moment(request: Request, form: Form) -> int:
    """When ages in the condition are reckoned from: when the form was made."""
    text = form.get("now")
    return int(text) if text.isdecimal() and len(text) < 16 else parts_of(request).clock.now()


def _selection(where: str, now: int) -> dict[str, object]:
    return {"where": where, "now": now} if where else {}


def _back(where: str) -> str:
    return link("/queue", {"where": where})
