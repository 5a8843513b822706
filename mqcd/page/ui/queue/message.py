"""One message: envelope, recipients, header, history, and why it waits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.client import Question, ServerDown
from mqcd.page.parts import parts_of
from mqcd.page.ui.asking import get
from mqcd.page.ui.queue.actions import ACTIONS
from mqcd.page.ui.templates import refused, render

_SPID = re.compile("[0-9A-Fa-f]{16}")
_SHOWN = ("v", "id", "at", "event", "spid", "qid", "recipient", "code", "status", "reply")
"""Fields of an event that have a place of their own, or say nothing here."""
_PARTS = ("recipients", "headers", "history", "unread", "envelope")


async def _page(request: Request) -> Response:
    spid = request.path_params["spid"].upper()
    if not _SPID.fullmatch(spid):
        text = "A message is named by 16 hexadecimal digits."
        return refused(request, text, "/queue", HTTPStatus.NOT_FOUND)
    said = await get(request, f"/v1/messages/{spid}")
    if said.value is None:
        status = HTTPStatus.NOT_FOUND if said.missing else HTTPStatus.SERVICE_UNAVAILABLE
        return refused(request, said.trouble, "/queue", status)
    value = said.value
    envelope = value.get("envelope") or {name: each for name, each in value.items() if name not in _PARTS}
    return render(
        "message.html",
        request,
        spid=spid,
        envelope={name: each for name, each in envelope.items() if name != "spid"},
        rows=[_recipient(row, envelope) for row in value.get("recipients", [])],
        headers=value.get("headers"),
        history=[_event(each) for each in value.get("history", [])],
        unread=value.get("unread", []),
        where=f"spid = {spid}",
        now=parts_of(request).clock.now(),
        actions=ACTIONS,
    )


async def _why(request: Request) -> Response:
    spid = request.path_params["spid"]
    try:
        answer = await parts_of(request).client.ask(Question.get("/v1/explain", {"q": spid}))
    except ServerDown as down:
        return render("parts/why.html", request, trouble=str(down), rows=[])
    if not answer.good:
        return render("parts/why.html", request, trouble=answer.text, rows=[])
    rows = [json.loads(line) for line in answer.text.splitlines()]
    return render("parts/why.html", request, trouble="", rows=rows)


ROUTES = (
    Route("/messages/{spid}", _page),
    Route("/messages/{spid}/why", _why),
)


def _recipient(row: Mapping[str, Any], envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipient that has left the queue lacks most fields."""
    names = ("qid", "recipient", "area", "due", "status", "reply", "last")
    blank = {
        "inflight": False,
        "attempts": 0,
        "received": envelope.get("received"),
        "size": envelope.get("size"),
    }
    return {**dict.fromkeys(names), **blank, "sender": envelope.get("sender", ""), **row}


def _event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event as a line: what it is, and the rest of its fields."""
    said = " ".join(str(event[name]) for name in ("code", "status", "reply") if event.get(name))
    rest: Sequence[tuple[str, Any]] = [(name, each) for name, each in event.items() if name not in _SHOWN]
    return {
        "at": event.get("at"),
        "event": event.get("event", ""),
        "qid": event.get("qid"),
        "said": said,
        "rest": [(name, each) for name, each in rest if each not in ("", None)],
    }
