"""A server's control socket without a server: answers from a table, and keeps what was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mqcd.page.client import Answer, Question, ServerDown, Stream


def said(value: object, status: int = 200) -> Answer:
    """An answer of JSON."""
    return Answer(status=status, content_type="application/json", body=json.dumps(value).encode())


def refusal(status: int, text: str) -> Answer:
    """An answer of text."""
    return Answer(status=status, content_type="text/plain; charset=utf-8", body=f"{text}\n".encode())


CALLS = (
    ("get", "/v1/areas", "read"),
    ("get", "/v1/events", "read"),
    ("post", "/v1/batch", "operate"),
    ("post", "/v1/messages", "inject"),
    ("get", "/v1/messages/{spid}", "read"),
    ("get", "/v1/messages/{spid}/content", "operate"),
)
"""Method, path, role."""


def described() -> dict[str, Any]:
    """A description of some calls."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, role in CALLS:
        kind = "text/event-stream" if path.endswith("/events") else "application/json"
        done = {"description": "Done.", "content": {kind: {}}}
        responses: dict[str, Any] = {"200": done, "503": {"description": "Not now."}}
        author = {"name": "X-Mqcd-Author", "in": "header", "required": False, "schema": {"type": "string"}}
        key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
        operation = {"x-role": role, "parameters": [author, key], "responses": responses}
        paths.setdefault(path, {})[method] = operation
    return {"openapi": "3.1.0", "info": {"title": "mqcd", "version": "0"}, "paths": paths}


@dataclass
class FakeControl:
    """Implements `mqcd.page.client.Client`."""

    answers: dict[str, Answer] = field(default_factory=dict)
    """By path; any other gets 404."""
    live: dict[str, Callable[[], AsyncIterator[bytes]]] = field(default_factory=dict)
    """By path: answers that go on."""
    down: str = ""
    """Why there is no answer; "" = there are answers."""
    asked: list[Question] = field(default_factory=list)

    async def ask(self, question: Question) -> Answer:
        if question.upload is not None:
            question = replace(
                question, body=b"".join([piece async for piece in question.upload]), upload=None
            )
        self.asked.append(question)
        if self.down:
            raise ServerDown(self.down)
        return self.answers.get(question.path, refusal(404, "no such page"))

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[Stream]:
        answer = await self.ask(question)
        if (live := self.live.get(question.path)) is not None:
            yield Stream(status=200, content_type="text/event-stream", pieces=live())
            return

        async def pieces() -> AsyncIterator[bytes]:
            yield answer.body

        yield Stream(status=answer.status, content_type=answer.content_type, pieces=pieces())
