"""Advice of the analytics that waits for a decision, and that in effect, from the advice files.

A decision changes the files as `mqcd pipeline advise --apply` and `--cancel` do, and is logged with its
author; the server takes it up within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mqcd.advice.desk import Desk
from mqcd.config.advice import Advice, Shaping, Suppression, read_advice
from mqcd.config.problems import BadConfiguration
from mqcd.core.display import printable
from mqcd.core.errors import MqcdError
from mqcd.core.events import format_time
from mqcd.core.ports import Clock
from mqcd.page.access.gate import caller_of
from mqcd.page.ui.forms import Form, onwards, posted
from mqcd.page.ui.queue.actions import MOST_REASON
from mqcd.page.ui.templates import render

log = logging.getLogger("mqcd.page")

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

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """The page, and its decisions."""
        return [
            Route("/advice", self._page, methods=["GET"]),
            Route("/advice", self._decide, methods=["POST"]),
        ]

    async def _decide(self, request: Request) -> Response:
        form = await posted(request)
        reason = printable(form.get("reason"))[:MOST_REASON]
        try:
            done = await asyncio.to_thread(self._decided, form)
        except (OSError, MqcdError) as error:
            text = f"The advice stays as it was: {error}"
            return render("refused.html", request, status=HTTPStatus.CONFLICT, text=text, back="/advice")
        log.info("advice: %s by %s%s", done, caller_of(request).author, f": {reason}" if reason else "")
        return onwards("/advice")

    def _decided(self, form: Form) -> str:
        """Change the files; what was done, for the log. Raises OSError, MqcdError."""
        desk = Desk(self._directory, self._clock.now())
        if name := form.get("accept"):
            return f"{desk.accept(name).id} is accepted"
        if name := form.get("dismiss"):
            return f"{desk.cancel(name).id} is cancelled"
        done = desk.apply()
        return f"{done.added} pieces are accepted, {done.kept} stay, {done.dropped} end"

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
