"""The table: pages and description are made of it, and what is answered is what it says."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path

import jsonschema
import pytest
from openapi_spec_validator import validate

from mqcd.core.errors import DecodeError, StoreUnavailable
from mqcd.core.events import Verb
from mqcd.daemon.control.api.binding import Given, Missing, bind
from mqcd.daemon.control.api.openapi import describe
from mqcd.daemon.control.api.operation import JSON, LINES, Method, Operation
from mqcd.daemon.control.api.table import TABLE
from mqcd.daemon.shards.front import Front
from mqcd.ops.http.server import Answer, Request
from tests.unit.daemon.support import running

ONE = {"/v1/one": {Method.GET: Operation(name="one", summary="One.")}}
OWN = {"/metrics", "/healthz", "/readyz"}


def test_the_description_is_openapi() -> None:
    validate(json.loads(json.dumps(describe(TABLE, "1.0"))))


def test_names_are_given_once() -> None:
    names = [operation.name for methods in TABLE.values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_the_front_process_serves_the_same() -> None:
    assert Front(Path("control.sock"), [0, 1], 2, Path("batches"), 1).for_commands().keys() == {*TABLE, *OWN}


def test_an_operation_needs_a_handler_and_a_handler_one() -> None:
    with pytest.raises(KeyError):
        bind(ONE, {})
    with pytest.raises(ValueError, match="two"):
        bind(ONE, {"one": lambda _, __: 1, "two": lambda _, __: 2})


@pytest.mark.parametrize(
    ("error", "status"), [(DecodeError("x"), 400), (Missing("x"), 404), (StoreUnavailable("x"), 503)]
)
async def test_errors_have_their_status(error: Exception, status: int) -> None:
    def handler(_request: Request, _given: Given) -> object:
        raise error

    found = bind(ONE, {"one": handler})["/v1/one"]
    assert found.get is not None
    answer = found.get(Request(method="GET", path="/v1/one"))
    answer = answer if isinstance(answer, Answer) else await answer
    assert (answer.status, answer.body) == (status, b"x\n")


LOOKS = [
    (path, operation)
    for path, methods in TABLE.items()
    if (operation := methods.get(Method.GET)) is not None and operation.gives in (JSON, LINES)
]


async def test_answers_are_what_the_table_says(tmp_path: Path) -> None:
    async with running(tmp_path, rules=["*=450 4.2.1 not now"]) as house:
        await house.send("a@x.example", "b@y.example")
        await house.heard(Verb.DEFERRED)
        rows = json.loads((await house.get("/v1/recipients"))[1])["rows"]
        for path, operation in LOOKS:
            query = {"explain": "?q=a@x.example"}.get(operation.name, "")
            status, text = await house.get(path.replace("{spid}", rows[0]["spid"]) + query)
            assert status == HTTPStatus.OK, path
            for each in text.splitlines() if operation.gives == LINES else [text]:
                jsonschema.Draft202012Validator(dict(operation.answer or {})).validate(json.loads(each))
