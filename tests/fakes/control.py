"""A server's control socket without a server: answers from a table, and keeps what was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

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
        return await self.ask(Question.get(path, query))

    async def post(self, path: str, fields: Mapping[str, object], author: str = "") -> Answer:
        return await self.ask(Question.post(path, fields, author))

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

        async def pieces() -> AsyncIterator[bytes]:
            yield answer.body

        yield Stream(status=answer.status, content_type=answer.content_type, pieces=pieces())
