"""An action over a selection: first its count and a sample, then a reason, then the action itself.

The count and the action go by the same condition at the same time (`now`), so that mail that came since is
in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.ports import Clock
from mqcd.page.access.gate import caller_of
from mqcd.page.client import Client
from mqcd.page.ui.asking import Said, post
from mqcd.page.ui.forms import Form, asked, link, onwards, posted
from mqcd.page.ui.queue.actions import ACTIONS, MOST_REASON, Act, BadField, details
from mqcd.page.ui.queue.conditions import of_picked, problem
from mqcd.page.ui.templates import render

_BATCH = "/v1/batch"


class Acting:
    """Its pages."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """Form, count, action."""
        return [
            Route("/act", self._form, methods=["GET"]),
            Route("/act", self._act, methods=["POST"]),
            Route("/act/count", self._count),
        ]

    async def _form(self, request: Request) -> Response:
        form = asked(request)
        act = ACTIONS.get(form.get("action"))
        if act is None:
            return render("refused.html", request, status=404, text="There is no such action.", back="/queue")
        if form.get("scope") == "picked" and not form.all("pick"):
            text = "No row is checked. Check the rows that are meant, or choose all that match."
            return render("refused.html", request, status=400, text=text, back=_back(form.get("where")))
        where = of_picked(form.all("pick")) if form.get("scope") == "picked" else form.get("where")
        return await self._shown(request, act, where, form, self._clock.now())

    async def _shown(
        self, request: Request, act: Act, where: str, form: Form, now: int, wrong: Mapping[str, str] = {}
    ) -> Response:
        syntax = problem(where, now)
        wrong = {**wrong, **({"where": syntax.text} if syntax else {})}
        counted = None
        if form.get("wait") and not wrong:
            counted = await self._counted(act, where, now)
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

    async def _count(self, request: Request) -> Response:
        form = asked(request)
        act = ACTIONS.get(form.get("action"))
        if act is None:
            return render(
                "parts/matched.html", request, said=Said(trouble="There is no such action."), act=None
            )
        counted = await self._counted(act, form.get("where"), _moment(form, self._clock))
        return render("parts/matched.html", request, said=counted, act=act)

    async def _counted(self, act: Act, where: str, now: int) -> Said:
        """What the action would change: `matched`, `changed`, `in_flight`, `sample`."""
        fields = {"action": act.name, "selection": _selection(where, now), "dry_run": True}
        return await post(self._client, _BATCH, fields, "")

    async def _act(self, request: Request) -> Response:
        form = await posted(request)
        act = ACTIONS.get(form.get("action"))
        if act is None:
            return render("refused.html", request, status=404, text="There is no such action.", back="/queue")
        where, now = form.get("where"), _moment(form, self._clock)
        try:
            order = details(act, form, self._clock.now())
        except BadField as error:
            return await self._shown(request, act, where, form, now, {error.field: str(error)})
        reason = form.get("reason")[:MOST_REASON]
        fields = {"action": act.name, "selection": _selection(where, now), "reason": reason, **order}
        said = await post(self._client, _BATCH, fields, caller_of(request).author)
        if said.value is None:
            return await self._shown(request, act, where, form, now, {"server": said.trouble})
        return onwards(f"/batches/{said.value['batch']}")


def _moment(form: Form, clock: Clock) -> int:
    """When ages in the condition are reckoned from: when the form was made."""
    text = form.get("now")
    return int(text) if text.isdecimal() and len(text) < 16 else clock.now()


def _selection(where: str, now: int) -> dict[str, object]:
    return {"where": where, "now": now} if where else {}


def _back(where: str) -> str:
    return link("/queue", {"where": where})
