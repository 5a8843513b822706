"""The overview: health in words, then the figures as pictures. No part of it looks through the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.core.events import NOT_DELIVERED
from mqcd.core.samples import AREAS, Sample, View, view
from mqcd.page.client import ServerDown
from mqcd.page.parts import parts_of
from mqcd.page.ui import charts
from mqcd.page.ui.asking import Said, at_once, get
from mqcd.page.ui.attention import State, findings, full_in_ms, growth
from mqcd.page.ui.formats import clean
from mqcd.page.ui.server import parts
from mqcd.page.ui.templates import render

_MOST_ROWS = 8
_FLOWS = ("accepted", "delivered")
_FAILURES = (*(verb.value for verb in NOT_DELIVERED), "refused")


async def _page(request: Request) -> Response:
    values = await at_once(_values(request))
    known = values is not None
    status = 503 if values and values["down"] else 200
    refreshed = request.query_params.get("refresh") != "off"
    return render("overview.html", request, status=status, known=known, refreshed=refreshed, **(values or {}))


async def _part(request: Request) -> Response:
    return render("parts/overview.html", request, **await _values(request))


async def _values(request: Request) -> Mapping[str, Any]:
    recorder = parts_of(request).recorder
    try:
        sample = await recorder.fresh()
    except ServerDown as down:
        return {"down": str(down)}
    asked = (get(request, path) for path in ("/v1/destinations", "/v1/state", "/v1/areas"))
    destinations, state, areas = await asyncio.gather(*asked)
    samples = [each for each in recorder.samples() if each.metrics] or [sample]
    shown = view([*samples[:-1], sample])
    found = State(view=shown, samples=samples, destinations=destinations.rows, parts=parts(state))
    return {
        "down": "",
        "view": shown,
        "findings": findings(found),
        "destinations": worst(destinations),
        "hidden": destinations.trouble,
        "areas": area_rows(shown, areas),
        "flow": charts.trend(samples, _FLOWS),
        "failing": _FAILURES,
        "failures": charts.trend(samples, _FAILURES),
        "reasons": reasons(samples),
        "disks": disks(shown, samples),
    }


ROUTES = (
    Route("/", _page),
    Route("/overview", _part),
)


def worst(destinations: Said) -> Sequence[Mapping[str, Any]]:
    """The first rows: the server has them in this order."""
    return destinations.rows[:_MOST_ROWS]


def area_rows(shown: View, areas: Said) -> Mapping[str, Any]:
    """What each area holds, with its part of the bar."""
    names = ("recipients", "bytes", "age")
    rows: dict[str, dict[str, Any]] = {
        name: dict(zip(names, shown.areas[name], strict=True)) for name in AREAS
    }
    for row in areas.rows:
        if row.get("area") not in rows and row.get("recipients"):
            rows[row["area"]] = {"recipients": row["recipients"], "bytes": row["bytes"], "age": None}
    pieces = charts.stacked({name: row["recipients"] for name, row in rows.items()})
    return {"rows": rows, "pieces": pieces, "total": sum(row["recipients"] for row in rows.values())}


def reasons(samples: Sequence[Sample]) -> Sequence[Mapping[str, Any]]:
    """Why attempts failed and mail was refused, since the first sample: the most frequent first."""
    counts: dict[tuple[str, str], float] = {}
    for (kind, code, verdict, *_), count in growth(samples, "mqcd_replies_total").items():
        if verdict != "delivered":
            key = verdict, f"{code} {kind}".strip()
            counts[key] = counts.get(key, 0) + count
    for (reason, *_), count in growth(samples, "mqcd_refused_total").items():
        counts["refused", reason] = count
    most = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_ROWS]
    return [
        {"verdict": verdict, "reason": clean(reason), "count": count, "bar": charts.bar(count, most)}
        for (verdict, reason), count in ordered
    ]


def disks(shown: View, samples: Sequence[Sample]) -> Sequence[Mapping[str, Any]]:
    """Free space, what it was, and when there is none left."""
    return [
        {
            "root": root,
            "free": free,
            "full_in": full_in_ms(samples, root),
            "trend": charts.levels(
                samples, {"free": [each.value("mqcd_disk_free_bytes", root) for each in samples]}
            ),
        }
        for root, free in shown.disks.items()
    ]
