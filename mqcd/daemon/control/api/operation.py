"""One thing that can be asked, and what comes of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus

from mqcd.core.value import value
from mqcd.daemon.control.api.fields import Field, Schema

JSON = "application/json"
LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
OCTETS = "application/octet-stream"
MESSAGE = "message/rfc822"


class Method(StrEnum):
    """GET looks, POST changes."""

    GET = "GET"
    POST = "POST"


class Role(StrEnum):
    """Who may ask, where more than the server's own user can."""

    READ = "read"
    OPERATE = "operate"
    INJECT = "inject"


class Body(StrEnum):
    """How the body of a POST is read."""

    FIELDS = "fields"
    """By `Operation.fields`, which are all there may be."""
    OWN = "own"
    """By the page, as `Operation.fields` describe."""
    STREAM = "stream"
    """By the page, as it comes; any length."""


@value
class Operation:
    """A method of a path."""

    name: str
    """Names it in the description and for what answers; no other has it."""
    summary: str
    role: Role = Role.READ
    fields: Sequence[Field] = ()
    """Of the query, or of the body of a POST."""
    headers: Sequence[Field] = ()
    """Fields of the request's header that matter."""
    body: Body = Body.FIELDS
    takes: Sequence[str] = (JSON,)
    """Media types of a body."""
    gives: str = JSON
    """Media type of the answer."""
    answer: Schema | None = None
    """Of JSON, or of each line or event."""
    searches: bool = False
    """Whether it may look through the whole queue, and takes its time."""
    errors: Sequence[HTTPStatus] = ()
    """Besides 400, 500 and 503, which any operation may answer."""


Operations = Mapping[tuple[Method, str], Operation]
"""By method and path; names in paths stand in braces."""
Table = Mapping[str, Mapping[Method, Operation]]
"""By path, and then by method."""


def by_path(operations: Operations) -> Table:
    """The same with the methods of each path together."""
    table: dict[str, dict[Method, Operation]] = {}
    for (method, path), operation in operations.items():
        table.setdefault(path, {})[method] = operation
    return table
