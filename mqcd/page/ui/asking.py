"""Questions to the server whose answers stand side by side on a page: one that fails spoils no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.requests import Request

from mqcd.core.value import value
from mqcd.page.access.gate import caller_of
from mqcd.page.client import Answer, Question, ServerDown
from mqcd.page.parts import parts_of

AT_ONCE_S = 0.12
"""How long a page waits for what it shows at first; what takes longer is loaded after it."""

_NO_PAGE = "no such page"
_OLDER = "It is older than this page: restart it."

Made = TypeVar("Made")


@value
class Said:
    """What came of a question."""

    value: Any = None
    """The JSON value; None: there is none."""
    trouble: str = ""
    """Why there is none, for the reader; "" = there is one."""
    offered: bool = True
    """False: the server has no such page; it is of another version."""
    missing: bool = False
    """True: the page is there, and what was asked for is not."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Where the value is a list of objects."""
        return self.value if isinstance(self.value, list) else []


async def get(request: Request, path: str, query: Mapping[str, str] = {}) -> Said:
    """Ask for a page of JSON."""
    return await _ask(request, Question.get(path, query))


async def search(request: Request, path: str, query: Mapping[str, str]) -> Said:
    """The same for a page that may look through the whole queue."""
    return await _ask(request, replace(Question.get(path, query), searches=True))


async def post(request: Request, path: str, fields: Mapping[str, object]) -> Said:
    """Ask for a change, or for what it would be, on behalf of the one who asks for this page."""
    return await _ask(request, Question.post(path, fields, caller_of(request).author))


async def _ask(request: Request, question: Question) -> Said:
    try:
        return _heard(await parts_of(request).client.ask(question))
    except ServerDown as down:
        return Said(trouble=str(down))


def _heard(answer: Answer) -> Said:
    """An answer as the page takes it. Raises ServerDown where it is no JSON."""
    if answer.status == HTTPStatus.NOT_FOUND:
        if _NO_PAGE in answer.text:
            return Said(trouble=_OLDER, offered=False)
        return Said(trouble=answer.text, missing=True)
    if not answer.good:
        return Said(trouble=answer.text or f"the server answers with status {answer.status}")
    return Said(value=answer.json())


async def at_once(asked: Awaitable[Made], seconds: float = AT_ONCE_S) -> Made | None:
    """What comes of it if it comes soon; None otherwise, and the question is given up."""
    try:
        async with asyncio.timeout(seconds):
            return await asked
    except TimeoutError:
        return None
