"""Labels: any value is one word, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.labels import MAX_VALUE, label, value_of


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_a_value_is_one_word_and_comes_back(first: str, second: str) -> None:
    labels = f"{label('tag', first)} {label('tenant', second)}"
    assert len(labels.split()) == 2
    assert value_of(labels, "tag") == first.encode(errors="replace").decode()
    assert value_of(labels, "tenant") == second.encode(errors="replace").decode()


def test_no_value_has_no_label() -> None:
    assert label("tenant", "") == value_of("tag=tenant=a", "tenant") == value_of("", "tag") == ""


@pytest.mark.parametrize("char", ["a", "%", " ", "\u00e9", "\ufffd", "\U0001f600"])
@pytest.mark.parametrize("before", ["", "a", "aa", "aaa"])
def test_a_long_value_is_cut_behind_a_whole_character(char: str, before: str) -> None:
    written = label("tag", before + char * 600)
    value = value_of(written, "tag")
    assert MAX_VALUE - 12 < len(written) - len("tag=") <= MAX_VALUE
    assert (before + char * 600).startswith(value)
    assert label("tag", value) == written
