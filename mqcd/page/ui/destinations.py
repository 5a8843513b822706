"""Destinations with mail, the worst first: why each is slow, in words, and what can be done about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.page.ui.asking import at_once, get, post
from mqcd.page.ui.formats import duration
from mqcd.page.ui.forms import asked, link, onwards, posted
from mqcd.page.ui.queue.conditions import problem, quoted
from mqcd.page.ui.rules import RULES
from mqcd.page.ui.templates import render

_COLUMNS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "destination": ("Destination", lambda row: row["destination"]),
    "oldest": ("Oldest", lambda row: -(row["oldest_ms"] or 0)),
    "waiting": ("Waiting", lambda row: -row["waiting"]),
    "connections": ("Connections", lambda row: -row["connections"]),
}
"""Names that a table is sorted by: the heading, and the key."""


async def _page(request: Request) -> Response:
    values = await at_once(_values(request))
    return render("destinations.html", request, known=values is not None, **(values or {}))


async def _rows(request: Request) -> Response:
    return render("parts/destinations.html", request, **await _values(request))


async def _values(request: Request) -> Mapping[str, Any]:
    asked_for = (get(request, path) for path in ("/v1/destinations", RULES))
    said, rules = await asyncio.gather(*asked_for)
    suspending = {str(row["where"]): row["id"] for row in rules.rows if row["action"] == "suspend"}
    sort, backwards = asked(request).get("sort"), asked(request).get("backwards") == "Y"
    rows = [_row(row, suspending) for row in said.rows]
    if sort in _COLUMNS:
        rows.sort(key=_COLUMNS[sort][1], reverse=backwards)
    return {
        "trouble": said.trouble,
        "rows": rows,
        "columns": {name: heading for name, (heading, _) in _COLUMNS.items()},
        "sort": sort,
        "backwards": backwards,
    }


async def _suspend(request: Request) -> Response:
    return render("suspend.html", request, name=asked(request).get("name"), given={}, trouble="")


async def _suspended(request: Request) -> Response:
    form = await posted(request)
    name = form.get("name")
    fields: dict[str, object] = {"action": "suspend", "where": f"site = {quoted(name)}"}
    fields |= {each: form.get(each) for each in ("reason", "for") if form.get(each)}
    said = await post(request, "/v1/rules", fields)
    if said.value is None:
        given = {each: form.get(each) for each in ("reason", "for")}
        status = HTTPStatus.BAD_REQUEST
        return render("suspend.html", request, status=status, name=name, given=given, trouble=said.trouble)
    return onwards("/destinations")


ROUTES = (
    Route("/destinations", _page),
    Route("/destinations/rows", _rows),
    Route("/destinations/suspend", _suspend, methods=["GET"]),
    Route("/destinations/suspend", _suspended, methods=["POST"]),
)


def _row(row: Mapping[str, Any], suspending: Mapping[str, str]) -> Mapping[str, Any]:
    """With its state in words, and the links of its mail. `suspending`: rules by their conditions.

    A destination that a rule suspends is known to the server as such only once mail for it is due.
    """
    name = str(row["destination"])
    standing = next((rule for where, rule in suspending.items() if where in _ways(name)), None)
    row = {**row, "rule": standing or row.get("rule"), "suspended": row["suspended"] or bool(standing)}
    where = selecting(name)
    return {
        **row,
        "state": state(row),
        "why": why(row) if standing else row.get("why_text") or why(row),
        "mail": link("/queue", {"where": where}) if where else "",
        "retry": link("/act", {"action": "retry", "scope": "all", "where": where}) if where else "",
        "suspend": link("/destinations/suspend", {"name": name}),
    }


def _ways(name: str) -> Sequence[str]:
    """How a condition on one destination is written."""
    return f"site = {name}", f"site = {quoted(name)}"


def selecting(name: str) -> str:
    """A condition on the recipients of a destination, where records show it; "" where none does."""
    conditions = (f"site = {quoted(name)}", f"domain = {quoted(name)}")
    usable = (each for each in conditions if ":" not in name and problem(each, 0) is None)
    return next(usable, "")


def state(row: Mapping[str, Any]) -> Sequence[str]:
    """A word, and how it is coloured."""
    if row.get("rule") and row["suspended"]:
        return "suspended", "warning"
    if row["suspended"]:
        return "dead", "alarm"
    return ("slowed", "warning") if row.get("rule") else ("open", "good")


def why(row: Mapping[str, Any]) -> str:
    """Why mail waits, where the server does not say so itself."""
    if row["suspended"] and row.get("rule"):
        return "a rule suspends it"
    if row["suspended"]:
        return f"no server accepts connections; next probe in {duration(row['probe_in_ms'])}"
    if row["rate_in_ms"]:
        return f"a rate holds it back; the next recipient may go in {duration(row['rate_in_ms'])}"
    if row["waiting"] and row["connections"] > row["idle"]:
        return "all its connections are at work"
    return "its mail waits for the next attempt" if row["oldest_ms"] else "nothing holds it back"
