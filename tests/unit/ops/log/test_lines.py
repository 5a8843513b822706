"""Lines that nothing can break or forge."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.ops.log.lines import as_json, logfmt


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("a@exämple.org", "a@exämple.org"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "hi"', r'"say \"hi\""'),
        ("a=b", '"a=b"'),
        ("back\\slash", r'"back\\slash"'),
        ("x\nevent=forged", r'"x\nevent=forged"'),
        ("\x1b[2J\x9b\u2028\x00", r'"\u001b[2J\u009b\u2028\u0000"'),
        ("\ud800", r'"\ud800"'),
        (7, "7"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_values_in_logfmt(value: str | int, written: str) -> None:
    assert logfmt({"name": value, "next": 1}) == f"name={written} next=1"


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.one_of(st.text(), st.integers())))
def test_json_says_what_was_given(fields: dict[str, str | int]) -> None:
    line = as_json(fields)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == fields


@given(st.text(st.characters(), max_size=50))
def test_logfmt_stays_on_its_line(value: str) -> None:
    line = logfmt({"first": value, "last": "end"})
    assert len(line.splitlines()) == 1
    written = line.removeprefix("first=").removesuffix(" last=end")
    if written.startswith('"'):
        assert json.loads(written) == value
    else:
        assert written == value
        assert not set(written) & set(' "=')
