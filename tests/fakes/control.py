"""A server's control socket without a server: answers from a table, and keeps what was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mqcd.page.client import Answer, Question, ServerDown, Stream


def said(value: object, status: int = 200) -> Answer:
    """An answer of JSON."""
    return Answer(status=status, content_type="application/json", body=json.dumps(value).encode())


def refusal(status: int, text: str) -> Answer:
    """An answer of text."""
    return Answer(status=status, content_type="text/plain; charset=utf-8", body=f"{text}\n".encode())


@dataclass
class FakeControl:
    """Implements `mqcd.page.client.Client`."""

    answers: dict[str, Answer] = field(default_factory=dict)
    """By path; any other gets 404."""
    down: str = ""
    """Why there is no answer; "" = there are answers."""
    asked: list[Question] = field(default_factory=list)

    async def get(self, path: str, query: Mapping[str, str] = {}) -> Answer:
        return await self.ask(
            Question(method="GET", path=path, query=query, body=b"", content_type="", author="")
        )

    async def post(self, path: str, fields: Mapping[str, object], author: str = "") -> Answer:
        body, kind = json.dumps(fields).encode(), "application/json"
        return await self.ask(
            Question(method="POST", path=path, query={}, body=body, content_type=kind, author=author)
        )

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        if self.down:
            raise ServerDown(self.down)
        return self.answers.get(question.path, refusal(404, "no such page"))

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[Stream]:
        answer = await self.ask(question)

        async def pieces() -> AsyncIterator[bytes]:
            yield answer.body

        yield Stream(status=answer.status, content_type=answer.content_type, pieces=pieces())
