"""One message: envelope, recipients, header, history, and why it waits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.ports import Clock
from mqcd.page.client import Client, ServerDown
from mqcd.page.ui.asking import get
from mqcd.page.ui.queue.actions import ACTIONS
from mqcd.page.ui.templates import render

_SPID = re.compile("[0-9A-Fa-f]{16}")
_SHOWN = ("v", "id", "at", "event", "spid", "qid", "recipient", "code", "status", "reply")
"""Fields of an event that have a place of their own, or say nothing here."""
_PARTS = ("recipients", "headers", "history", "unread", "envelope")


class Messages:
    """Its pages."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """The page, and why it waits, which may have to ask DNS."""
        return [Route("/messages/{spid}", self._page), Route("/messages/{spid}/why", self._why)]

    async def _page(self, request: Request) -> Response:
        spid = request.path_params["spid"].upper()
        if not _SPID.fullmatch(spid):
            text = "A message is named by 16 hexadecimal digits."
            return render("refused.html", request, status=HTTPStatus.NOT_FOUND, text=text, back="/queue")
        said = await get(self._client, f"/v1/messages/{spid}")
        if said.value is None:
            status = HTTPStatus.NOT_FOUND if said.missing else HTTPStatus.SERVICE_UNAVAILABLE
            text = said.trouble
            return render("refused.html", request, status=status, text=text, back="/queue")
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
            now=self._clock.now(),
            actions=ACTIONS,
        )

    async def _why(self, request: Request) -> Response:
        spid = request.path_params["spid"]
        try:
            answer = await self._client.get("/v1/explain", {"q": spid})
        except ServerDown as down:
            return render("parts/why.html", request, trouble=str(down), rows=[])
        if not answer.good:
            return render("parts/why.html", request, trouble=answer.text, rows=[])
        rows = [json.loads(line) for line in answer.text.splitlines()]
        return render("parts/why.html", request, trouble="", rows=rows)


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
