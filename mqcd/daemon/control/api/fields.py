"""What may be given with a request: named values, read and described from the same place. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any
from urllib.parse import parse_qs

from mqcd.core.errors import DecodeError
from mqcd.core.units import duration_of
from mqcd.core.value import value

Schema = Mapping[str, Any]


class Kind(Enum):
    """What a value is, by the schema of its JSON form."""

    TEXT = "string"
    NUMBER = "integer"
    SWITCH = "boolean"
    DURATION = "duration"
    """A text such as 1h30m; its value is in ms."""
    TEXTS = "array"
    OBJECT = "object"


_TYPES: Mapping[Kind, tuple[type, str]] = {
    Kind.TEXT: (str, "a string"),
    Kind.NUMBER: (int, "a whole number"),
    Kind.SWITCH: (bool, "true or false"),
    Kind.DURATION: (str, "a time such as 10m"),
    Kind.TEXTS: (list, "an array of strings"),
    Kind.OBJECT: (dict, "an object"),
}
"""Its type in JSON, and how errors name it."""
_SWITCHES = {"true": True, "false": False, "1": True, "0": False}


@value
class Field:
    """A named value."""

    name: str
    kind: Kind = Kind.TEXT
    gloss: str
    required: bool = False
    choices: Sequence[str] = ()
    least: int = 0
    most: int | None = None
    """Bounds of a number; of a duration `most` is in ms."""

    @property
    def schema(self) -> Schema:
        """In JSON Schema."""
        schema: dict[str, Any] = {"type": self.kind.value, "description": self.gloss}
        if self.kind is Kind.DURATION:
            schema |= {"type": "string", "pattern": "^([0-9]+(w|d|h|ms|m|s)?)+$"}
        elif self.kind is Kind.NUMBER:
            schema["minimum"] = self.least
            if self.most is not None:
                schema["maximum"] = self.most
        elif self.kind is Kind.TEXTS:
            schema["items"] = {"type": "string"}
        if self.choices:
            schema["enum"] = list(self.choices)
        return schema

    def read(self, value: Any) -> Any:
        """A value of JSON. Raises DecodeError."""
        wanted, expected = _TYPES[self.kind]
        found = type(value)
        if found is not wanted or (found is list and not all(type(each) is str for each in value)):
            raise self._wrong(expected)
        if self.choices and value not in self.choices:
            raise self._wrong(f"one of {', '.join(self.choices)}")
        if self.kind is Kind.DURATION and (value := duration_of(value)) is None:
            raise self._wrong(expected)
        if self.kind in (Kind.NUMBER, Kind.DURATION):
            self._check(value)
        return value

    def read_text(self, text: str) -> Any:
        """A value of a query. Raises DecodeError."""
        if self.kind is Kind.NUMBER:
            if not (text.isdecimal() and text.isascii() and len(text) < 20):
                raise self._wrong("a whole number")
            return self.read(int(text))
        return self.read(_SWITCHES.get(text, text) if self.kind is Kind.SWITCH else text)

    def _check(self, value: int) -> None:
        if value < self.least or (self.most is not None and value > self.most):
            raise self._wrong(f"{self.least} to {self.most}" if self.most is not None else "a larger value")

    def _wrong(self, expected: str) -> DecodeError:
        return DecodeError(f"{self.name}: expected {expected}")


def read_query(fields: Sequence[Field], query: str) -> dict[str, Any]:
    """What a query gives. Raises DecodeError for what no field is, and for what lacks."""
    try:
        given = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError as error:
        raise DecodeError(f"not a query: {error}") from error
    by_name = {field.name: field for field in fields}
    _check_names(by_name, given)
    if doubled := [name for name, texts in given.items() if len(texts) > 1]:
        raise DecodeError(f"{doubled[0]}: given twice")
    return {name: by_name[name].read_text(texts[0]) for name, texts in given.items()}


def read_object(fields: Sequence[Field], body: bytes) -> dict[str, Any]:
    """What a JSON object gives. Raises DecodeError."""
    given = object_in(body or b"{}")
    by_name = {field.name: field for field in fields}
    _check_names(by_name, given)
    return {name: by_name[name].read(value) for name, value in given.items()}


def object_in(octets: bytes) -> dict[str, Any]:
    """A JSON object, of text that UTF-8 has: no escape stands for half a character. Raises DecodeError."""
    try:
        found = json.loads(octets.decode("utf-8-sig"))
        if b"\\u" in octets:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise DecodeError("expected one JSON object")
    return found


def _check_names(fields: Mapping[str, Field], given: Mapping[str, object]) -> None:
    if unknown := given.keys() - fields.keys():
        raise DecodeError(f"no such field: {min(unknown)[:60]}")
    lacking = [name for name, field in fields.items() if field.required and name not in given]
    if lacking:
        raise DecodeError(f"{lacking[0]}: missing")
