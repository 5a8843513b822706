"""The queue by age: exact counts, each of which looks through the whole queue.

So they are made after the page, one after another, and kept for a minute. A queue of more than MOST
recipients is counted only when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.core.value import value
from mqcd.page.parts import parts_of
from mqcd.page.ui import charts
from mqcd.page.ui.asking import get, search
from mqcd.page.ui.forms import asked, link
from mqcd.page.ui.templates import render

MOST = 200_000
_KEPT_MS = 60_000
_LIMITS = ("10m", "1h", "6h", "1d")
_QUEUED = "area != removed"


@value
class Bucket:
    """Recipients of some age."""

    name: str
    count: int
    bar: float
    mail: str
    """The link of their list."""


class Ages:
    """Makes the counts, and keeps them."""

    def __init__(self) -> None:
        self._made: tuple[int, Sequence[Bucket]] = 0, ()

    async def part(self, request: Request) -> Response:
        trouble, total, buckets = "", 0, self._kept(_now(request))
        if not buckets:
            areas = await get(request, "/v1/areas")
            total = sum(row["recipients"] for row in areas.rows if row["area"] != "removed")
            trouble = areas.trouble
            if not trouble and (total <= MOST or asked(request).get("count") == "Y"):
                trouble, buckets = await self._counted(request, total)
        return render("parts/ages.html", request, trouble=trouble, total=total, buckets=buckets)

    def _kept(self, now: int) -> Sequence[Bucket]:
        made, buckets = self._made
        return buckets if now - made < _KEPT_MS else ()

    async def _counted(self, request: Request, total: int) -> tuple[str, Sequence[Bucket]]:
        """Why it could not be counted, and the buckets, the youngest first."""
        older = [total]
        for limit in _LIMITS:
            said = await search(request, "/v1/count", {"where": f"age > {limit} and {_QUEUED}"})
            if said.value is None:
                return said.trouble, ()
            older.append(min(said.value["recipients"], older[-1]))
        counts = [one - other for one, other in zip(older, [*older[1:], 0], strict=True)]
        most = max(counts)
        buckets = [
            Bucket(name=name, count=count, bar=charts.bar(count, most), mail=link("/queue", {"where": where}))
            for (name, where), count in zip(_ranges(), counts, strict=True)
        ]
        self._made = _now(request), buckets
        return "", buckets


def routes() -> list[BaseRoute]:
    """Its part of the overview."""
    return [Route("/overview/ages", Ages().part)]


def _now(request: Request) -> int:
    """Monotonic, ms."""
    return parts_of(request).clock.monotonic()


def _ranges() -> Sequence[tuple[str, str]]:
    """The names of the buckets, and what selects their mail."""
    first, last = _LIMITS[0], _LIMITS[-1]
    between = [
        (f"{one} to {other}", f"age > {one} and age < {other} and {_QUEUED}")
        for one, other in pairwise(_LIMITS)
    ]
    return (
        (f"under {first}", f"age < {first} and {_QUEUED}"),
        *between,
        (f"over {last}", f"age > {last} and {_QUEUED}"),
    )
