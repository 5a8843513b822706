"""Pages made of the table: each operation with what answers it, and none without."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from mqcd.core.errors import DecodeError, MqcdError
from mqcd.daemon.control.api.fields import read_object, read_query
from mqcd.daemon.control.api.operation import JSON, Body, Method, Operation, Table
from mqcd.ops.http.server import Answer, Page, Request, Resource

Given = Mapping[str, Any]
"""What the request gives, by the names of the operation's fields; empty where the page reads its own body."""
Handler = Callable[[Request, Given], object]
"""Answers: a value for JSON, an `Answer`, or an awaitable of one of them. Raises DecodeError for what is
asked wrongly (400), Missing (404), and other errors of mqcd (503)."""


class Missing(MqcdError):
    """What was asked for is not there."""


def bind(table: Table, handlers: Mapping[str, Handler]) -> Mapping[str, Resource]:
    """Raises KeyError for an operation without a handler, ValueError for a handler without one."""
    named = {operation.name for methods in table.values() for operation in methods.values()}
    if unknown := handlers.keys() - named:
        raise ValueError(f"not in the table: {min(unknown)}")
    return {path: _bound(methods, handlers) for path, methods in table.items()}


def _bound(methods: Mapping[Method, Operation], handlers: Mapping[str, Handler]) -> Resource:
    pages = {method: _page(operation, handlers[operation.name]) for method, operation in methods.items()}
    get, post = methods.get(Method.GET), methods.get(Method.POST)
    return Resource(
        pages.get(Method.GET),
        pages.get(Method.POST),
        searches=get is not None and get.searches,
        reads=post is not None and post.body is Body.STREAM,
    )


def _page(operation: Operation, handler: Handler) -> Page:
    async def work(request: Request) -> object:
        if request.method != Method.POST:
            given = read_query(operation.fields, request.query)
        else:
            given = read_object(operation.fields, request.body) if operation.body is Body.FIELDS else {}
        found = handler(request, given)
        return await found if isinstance(found, Awaitable) else found

    return answering(work)


def answering(work: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Awaitable[Answer]]:
    """A page that answers with what `work` gives or raises, see `Handler`."""

    async def page(request: Request) -> Answer:
        try:
            found = await work(request)
        except Missing as error:
            return refused(HTTPStatus.NOT_FOUND, error)
        except DecodeError as error:
            return refused(HTTPStatus.BAD_REQUEST, error)
        except MqcdError as error:
            return refused(HTTPStatus.SERVICE_UNAVAILABLE, error)
        return found if isinstance(found, Answer) else Answer(body=json_line(found), content_type=JSON)

    return page


def refused(status: HTTPStatus, why: object) -> Answer:
    """A status and its reason, a line of text."""
    return Answer(status=status, body=f"{why}\n".encode())


def json_line(value: object) -> bytes:
    """A value as JSON, on a line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
