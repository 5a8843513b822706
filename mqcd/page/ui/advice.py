"""Advice of the analytics that waits for a decision, and that in effect, from the advice files.

A decision changes the files as `mqcd pipeline advise --apply` and `--cancel` do, and is logged with its
author; the server takes it up within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mqcd.advice.desk import Desk
from mqcd.config.advice import Advice, Shaping, Suppression, read_advice
from mqcd.config.problems import BadConfiguration
from mqcd.core.display import printable
from mqcd.core.errors import MqcdError
from mqcd.core.events import format_time
from mqcd.page.access.gate import caller_of
from mqcd.page.bounds import Refused
from mqcd.page.parts import Parts, parts_of
from mqcd.page.ui.forms import Form, onwards, posted
from mqcd.page.ui.queue.actions import MOST_REASON
from mqcd.page.ui.templates import refused, render

log = logging.getLogger("mqcd.page")

PROPOSED, ACTIVE = "proposed.xml", "active.xml"
MOST = 200
"""Pieces shown of each kind."""


async def _decide(request: Request) -> Response:
    form = await posted(request)
    reason = printable(form.get("reason"))[:MOST_REASON]
    try:
        done = await asyncio.to_thread(_decided, parts_of(request), form)
    except (OSError, MqcdError) as error:
        text = f"The advice stays as it was: {error}"
        return refused(request, text, "/advice", HTTPStatus.CONFLICT)
    log.info("advice: %s by %s%s", done, caller_of(request).author, f": {reason}" if reason else "")
    return onwards("/advice")


def _decided(parts: Parts, form: Form) -> str:
    """Change the files; what was done, for the log. Raises Refused, OSError, MqcdError."""
    desk = Desk(parts.terms.advice, parts.clock.now())
    if name := form.get("accept"):
        return f"{desk.accept(name).id} is accepted"
    if name := form.get("dismiss"):
        return f"{desk.cancel(name).id} is cancelled"
    if not form.get("all"):
        raise Refused(HTTPStatus.BAD_REQUEST, "accept or dismiss a piece, or accept all of the proposal")
    done = desk.apply()
    return f"{done.added} pieces are accepted, {done.kept} stay, {done.dropped} end"


async def _page(request: Request) -> Response:
    directory = parts_of(request).terms.advice
    paths = [directory / name for name in (PROPOSED, ACTIVE)]
    (proposed, one), (active, other) = await asyncio.to_thread(lambda: [_read(path) for path in paths])
    known = {piece.id: piece for piece in active.pieces()}
    waiting = [each for each in proposed.pieces() if known.get(each.id) != each]
    return render(
        "advice.html",
        request,
        troubles=list(filter(None, (one, other))),
        waiting=[_row(each) for each in waiting[:MOST]],
        more=max(len(waiting) - MOST, 0),
        active=[_row(each) for each in list(known.values())[:MOST]],
        in_effect=len(known),
    )


ROUTES = (
    Route("/advice", _page, methods=["GET"]),
    Route("/advice", _decide, methods=["POST"]),
)


def _read(path: Path) -> tuple[Advice, str]:
    """What a file has, and why it cannot be read."""
    try:
        return read_advice(path) if path.exists() else Advice(), ""
    except (OSError, BadConfiguration) as error:
        return Advice(), f"{path.name}: {error}"


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
