"""The description of an API in OpenAPI 3.1, made of its table. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from mqcd.daemon.control.api.fields import Field, Schema
from mqcd.daemon.control.api.operation import EVENTS, JSON, LINES, MESSAGE, Body, Method, Operation, Table

_ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_TEXT = {"text/plain": {"schema": {"type": "string", "description": "Why, in one line."}}}


def describe(table: Table, version: str) -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mqcd control API",
            "version": version,
            "summary": "What operators and programs ask of a running mail queue server.",
            "license": {"name": "See LICENSE", "url": "about:blank"},
        },
        "servers": [{"url": "/"}],
        "paths": {path: _path(path, methods) for path, methods in table.items()},
    }


def _path(path: str, methods: Mapping[Method, Operation]) -> dict[str, Any]:
    named = re.findall(r"\{(\w+)\}", path)
    item: dict[str, Any] = {
        method.value.lower(): _operation(method, each) for method, each in methods.items()
    }
    if named:
        item["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
        ]
    return item


def _operation(method: Method, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "x-role": operation.role.value,
        "responses": _responses(operation),
    }
    if operation.searches:
        described["x-searches"] = True
    parameters = [_parameter(each, "header") for each in operation.headers]
    if method is Method.GET:
        parameters += [_parameter(each, "query") for each in operation.fields]
    else:
        described["requestBody"] = _body(operation)
    if parameters:
        described["parameters"] = parameters
    return described


def _parameter(field: Field, place: str) -> dict[str, Any]:
    schema = {name: value for name, value in field.schema.items() if name != "description"}
    return {
        "name": field.name,
        "in": place,
        "required": field.required,
        "description": field.gloss,
        "schema": schema,
    }


def _body(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in operation.takes:
        schema = object_of(operation.fields) if media == JSON else {"type": "string"}
        content[media] = {"schema": schema}
    required = operation.body is Body.STREAM or any(each.required for each in operation.fields)
    return {"required": required, "content": content}


def object_of(fields: Sequence[Field]) -> Schema:
    """The schema of an object of these fields and no others."""
    return {
        "type": "object",
        "properties": {field.name: field.schema for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }


def _responses(operation: Operation) -> dict[str, Any]:
    schema: Schema = operation.answer or {"type": "string"}
    if operation.gives in (LINES, EVENTS, MESSAGE):
        media: dict[str, Any] = {"schema": {"type": "string"}}
        if operation.answer is not None:
            media["x-each"] = schema
    else:
        media = {"schema": schema}
    responses: dict[str, Any] = {
        "200": {"description": "Done.", "content": {operation.gives: media}},
    }
    for status in sorted({*_ALWAYS, *operation.errors}):
        responses[str(status.value)] = {"description": status.phrase, "content": _TEXT}
    return responses
