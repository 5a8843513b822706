"""The calls of the control socket that the API offers: all that the server describes, each with its role.

The server's description (GET /v1/openapi.json) is the only one. What it does not describe is not offered:
some of the control socket's pages are for commands alone. It is asked for once, and again for a call that it
does not have, at most once in LOOK_MS: the server may be a newer one by now.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mqcd.core.ports import Clock
from mqcd.core.value import value
from mqcd.page.access.tokens import Role
from mqcd.page.bounds import PROBLEM
from mqcd.page.client import AUTHOR, Client, Question, ServerDown

DESCRIPTION = "/v1/openapi.json"
LOOK_MS = 2_000
_LIVE = "text/event-stream"
_METHODS = ("get", "post", "put", "patch", "delete")
_PROBLEM = {
    "type": "object",
    "required": ["status", "title", "detail"],
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "integer"},
        "title": {"type": "string"},
        "detail": {"type": "string", "description": "Why, and what to do."},
    },
}
_REFUSALS = {
    "400": "The request is wrong; a token stands in its address.",
    "401": "There is no valid token.",
    "403": "The token has not the role that the call needs, x-role.",
    "408": "The request takes too long.",
    "411": "The length of the body is not said.",
    "413": "The body is too large.",
    "415": "A type that any web page can send, where no token is needed.",
    "421": "The field Host names another machine.",
    "429": "Too many wrong tokens from this address.",
}


@value
class Call:
    """A method of a path."""

    method: str
    path: re.Pattern[str]
    role: Role
    live: bool
    """Whether its answer goes on for as long as somebody reads it."""
    searches: bool
    """Whether the server may have to look through the whole queue for it."""
    headers: Collection[str]
    """Fields of a request's header that mean something to it."""


class Calls:
    """What the server describes."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._calls: tuple[Call, ...] = ()
        self._looked: int | None = None

    async def role_of(self, method: str, path: str) -> Role | None:
        """The role that a call needs; None: it is not offered. Raises ServerDown."""
        call = (await self.of(path)).get(method)
        return call.role if call is not None else None

    async def of(self, path: str) -> Mapping[str, Call]:
        """The calls of a path by their methods. Raises ServerDown."""
        found = self._known(path)
        if not found and self._may_look():
            self._calls = tuple(_calls(await self._ask()))
            self._looked = self._clock.monotonic()
            found = self._known(path)
        return found

    async def document(self) -> dict[str, Any]:
        """The description, with what the API adds: tokens. Raises ServerDown."""
        document = await self._ask()
        for _, _, operation in _operations(document):
            operation["security"] = [{"token": []}]
            operation["parameters"] = _parameters(operation)
            responses = operation["responses"]
            for status, text in _REFUSALS.items():
                responses.setdefault(status, {"description": text})
            for status in filter(_is_refusal, responses):
                responses[status]["content"] = {PROBLEM: {"schema": _PROBLEM}}
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["token"] = {"type": "http", "scheme": "bearer", "description": "See `mqcd token`."}
        return document

    def _known(self, path: str) -> Mapping[str, Call]:
        found = {call.method: call for call in self._calls if call.path.fullmatch(path)}
        return {**found, "HEAD": found["GET"]} if "GET" in found else found

    def _may_look(self) -> bool:
        return self._looked is None or self._clock.monotonic() - self._looked >= LOOK_MS

    async def _ask(self) -> dict[str, Any]:
        answer = await self._client.ask(Question.get(DESCRIPTION))
        if not answer.good:
            raise ServerDown(f"the server does not describe its calls: {answer.text}")
        document: dict[str, Any] = answer.json()
        return document


def _calls(document: Mapping[str, Any]) -> Iterator[Call]:
    for path, method, operation in _operations(document):
        parts = re.split(r"\{[a-z_]+\}", path)
        form = re.compile("[^/]+".join(map(re.escape, parts)))
        yield Call(
            method=method.upper(),
            path=form,
            role=Role(operation["x-role"]),
            live=_LIVE in operation["responses"]["200"].get("content", ()),
            searches=operation.get("x-searches", False),
            headers=[each["name"] for each in _parameters(operation) if each["in"] == "header"],
        )


def _parameters(operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """But for the author, which the API names."""
    return [each for each in operation.get("parameters", ()) if each["name"] != AUTHOR]


def _is_refusal(status: str) -> bool:
    return status[0] in "45"


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]
