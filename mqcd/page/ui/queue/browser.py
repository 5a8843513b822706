"""The list of recipients that a condition selects, part by part.

What has to look through the queue (the list, the count) is loaded after the page, and never waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from mqcd.page.parts import parts_of
from mqcd.page.ui.asking import get, search
from mqcd.page.ui.forms import Form, asked, link
from mqcd.page.ui.queue.actions import ACTIONS
from mqcd.page.ui.queue.conditions import problem, suggestions
from mqcd.page.ui.templates import render

ROWS = 50
SORTS = ("", "age")
_KNOWN_MS = 10_000
_MOST_FACETS = 5


async def _page(request: Request) -> Response:
    form = asked(request)
    where = form.get("where")
    wrong = problem(where, parts_of(request).clock.now())
    # Without scripts nothing is loaded later: then the list is waited for.
    found = await _found(request, form) if form.get("wait") and wrong is None else None
    return render(
        "queue.html",
        request,
        status=400 if wrong else 200,
        where=where,
        wrong=wrong,
        sort=form.get("sort"),
        known=found is not None,
        query=link("", _kept(form)),
        **(found or {}),
    )


async def _rows(request: Request) -> Response:
    form = asked(request)
    return render("parts/rows.html", request, where=form.get("where"), **await _found(request, form))


async def _found(request: Request, form: Form) -> Mapping[str, Any]:
    query = {name: value for name, value in _kept(form).items() if value}
    said = await search(request, "/v1/recipients", {**query, "limit": str(ROWS)})
    value = said.value or {}
    rows = value.get("rows", [])
    onward = {**_kept(form), "after": value.get("next") or ""}
    return {
        "trouble": said.trouble,
        "offered": said.offered,
        "rows": rows,
        "next": link("/queue", onward) if onward["after"] else "",
        "first": link("/queue", {**onward, "after": ""}) if form.get("after") else "",
        "now": parts_of(request).clock.now(),
        "facets": facets(rows),
        "left_out": value.get("left_out", []),
        "actions": ACTIONS,
        "counting": link("/queue/count", {"where": form.get("where")}),
    }


async def _count(request: Request) -> Response:
    where = asked(request).get("where")
    if where:
        said = await search(request, "/v1/count", {"where": where})
        return render("parts/count.html", request, trouble=said.trouble, counted=said.value)
    # What all areas hold is known without a look.
    said = await get(request, "/v1/areas")
    sums = {name: sum(row[name] for row in said.rows) for name in ("recipients", "bytes")}
    return render("parts/count.html", request, trouble=said.trouble, counted=sums if said.rows else None)


class Completion:
    """Help at the cursor of the box. It keeps the values that mail in the queue has."""

    def __init__(self) -> None:
        self._known: tuple[int, Mapping[str, Sequence[str]]] = 0, {}

    async def suggest(self, request: Request) -> Response:
        form = asked(request)
        text, at = request.query_params.get("text", ""), form.get("at")
        cursor = int(at) if at.isdecimal() and len(at) < 6 else len(text)
        found = suggestions(text, cursor, await self._values(request))
        return JSONResponse([{"text": each.text, "gloss": each.gloss, "start": each.start} for each in found])

    async def _values(self, request: Request) -> Mapping[str, Sequence[str]]:
        now, (taken, known) = parts_of(request).clock.monotonic(), self._known
        if known and now - taken < _KNOWN_MS:
            return known
        said = await get(request, "/v1/destinations")
        names = [str(row["destination"]) for row in said.rows if "destination" in row]
        known = {"site": names, "domain": [name for name in names if ":" not in name and "/" not in name]}
        self._known = now, known
        return known


def routes() -> list[BaseRoute]:
    """The page, its parts, and the help of its box."""
    return [
        Route("/queue", _page),
        Route("/queue/rows", _rows),
        Route("/queue/count", _count),
        Route("/queue/complete", Completion().suggest),
    ]


def _kept(form: Form) -> dict[str, str]:
    """What each part of the list is asked for with."""
    sort = form.get("sort")
    return {"where": form.get("where"), "sort": sort if sort in SORTS else "", "after": form.get("after")}


def facets(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """What most of some rows have in common: who floods, and what refuses."""
    fields = {
        "sender": Counter(str(row["sender"]) for row in rows if row["sender"]),
        "domain": Counter(str(row["recipient"]).rpartition("@")[2] for row in rows),
        "status": Counter(str(row["status"]) for row in rows if row["status"]),
    }
    return [
        {"field": name, "value": value, "count": count}
        for name, counts in fields.items()
        for value, count in counts.most_common(_MOST_FACETS)
        if count > 1
    ]
