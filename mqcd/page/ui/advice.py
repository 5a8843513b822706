"""Advice of the analytics that waits for a decision, and that in effect, from the advice files.

Nothing is changed here: a proposal is put in effect by `mqcd pipeline advise --apply`, as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.config.advice import Advice, Shaping, Suppression, read_advice
from mqcd.config.problems import BadConfiguration
from mqcd.core.events import format_time
from mqcd.page.ui.templates import render

PROPOSED, ACTIVE = "proposed.xml", "active.xml"
MOST = 200
"""Pieces shown of each kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What a file has."""

    advice: Advice
    trouble: str = ""


class AdvicePages:
    """Its pages."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def routes(self) -> list[BaseRoute]:
        """The page."""
        return [Route("/advice", self._page)]

    async def _page(self, request: Request) -> Response:
        proposed, active = await asyncio.to_thread(lambda: [self._read(name) for name in (PROPOSED, ACTIVE)])
        known = {piece.id: piece for piece in active.advice.pieces()}
        waiting = [each for each in proposed.advice.pieces() if known.get(each.id) != each]
        return render(
            "advice.html",
            request,
            troubles=[each.trouble for each in (proposed, active) if each.trouble],
            waiting=[_row(each) for each in waiting[:MOST]],
            more=max(len(waiting) - MOST, 0),
            active=[_row(each) for each in list(known.values())[:MOST]],
            in_effect=len(known),
        )

    def _read(self, name: str) -> Read:
        path = self._directory / name
        try:
            return Read(advice=read_advice(path) if path.exists() else Advice())
        except (OSError, BadConfiguration) as error:
            return Read(advice=Advice(), trouble=f"{name}: {error}")


def _row(piece: Suppression | Shaping) -> Mapping[str, Any]:
    if isinstance(piece, Suppression):
        subject, what = piece.recipient, ["no attempts"]
        said = " ".join(each for each in (piece.status, piece.reply) if each)
    else:
        subject, what, said = piece.match, list(_shape(piece)), ""
    return {
        "id": piece.id,
        "subject": subject,
        "what": ", ".join(what),
        "reason": piece.reason,
        "evidence": piece.evidence or said,
        "saves": piece.saves,
        "until": format_time(piece.until),
    }


def _shape(piece: Shaping) -> Sequence[str]:
    found = []
    if piece.rate is not None:
        found.append(f"rate {piece.rate.count} in {piece.rate.per // 1000} s")
    if piece.maxserverconnections is not None:
        found.append(f"at most {piece.maxserverconnections} connections")
    if piece.retry_delays:
        found.append("retries after " + ", ".join(f"{each // 60_000} min" for each in piece.retry_delays))
    return found
