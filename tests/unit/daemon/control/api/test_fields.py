"""What may be given with a request: read and described from the same place."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.errors import DecodeError
from mqcd.daemon.control.api.fields import Field, Kind, read_object, read_query
from mqcd.daemon.control.api.openapi import object_of

FIELDS = (
    Field(name="text", gloss="A text.", required=True),
    Field(name="number", kind=Kind.NUMBER, least=1, most=9, gloss="A number."),
    Field(name="on", kind=Kind.SWITCH, gloss="A switch."),
    Field(name="for", kind=Kind.DURATION, least=1000, most=60_000, gloss="A time."),
    Field(name="one", choices=["a", "b"], gloss="One of two."),
    Field(name="many", kind=Kind.TEXTS, gloss="Texts."),
)


def test_a_query_gives_typed_values() -> None:
    found = read_query(FIELDS, "text=&number=3&on=true&for=10s&one=b")
    assert found == {"text": "", "number": 3, "on": True, "for": 10_000, "one": "b"}


@pytest.mark.parametrize(
    "query",
    [
        "text=a&for=x",
        "text=a&for=2m",
        "text=a&one=c",
        "text=a&text=b",
        "text=%FF",
        "text",
        "",
        "number=3",
        "text=a&other=b",
        "text=a&number=x",
        "text=a&number=0",
        "text=a&number=10",
        "text=a&on=7",
    ],
)
def test_a_query_that_says_something_else_is_refused(query: str) -> None:
    with pytest.raises(DecodeError):
        read_query(FIELDS, query)


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"text":1}',
        b'{"text":"a","number":true}',
        b"\xff",
        b'{"text":"\\ud800"}',
        b'{"text":"a","\\uDFFF":1}',
        b'{"text":"\xed\xa0\x80"}',
    ],
)
def test_a_body_that_says_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        read_object(FIELDS, body)


def test_a_pair_of_escapes_is_one_character() -> None:
    assert read_object(FIELDS, b'{"text":"\\ud83d\\ude00"}') == {"text": "\N{GRINNING FACE}"}


_VALUES = st.one_of(
    st.integers(-1, 11), st.booleans(), st.sampled_from(["a", "b", "10s", "x", ""]), st.lists(st.just("a"))
)


@given(st.dictionaries(st.sampled_from([*(field.name for field in FIELDS), "other"]), _VALUES))
def test_what_is_read_is_what_the_schema_allows(value: dict[str, object]) -> None:
    """But for the bounds of times, which a pattern cannot say."""
    if value.get("for") not in (None, "10s") and isinstance(value["for"], str):
        value = {**value, "for": "10s"}
    validator = jsonschema.Draft202012Validator(dict(object_of(FIELDS)))
    try:
        read_object(FIELDS, json.dumps(value).encode())
    except DecodeError:
        assert not validator.is_valid(value)
    else:
        assert validator.is_valid(value)
