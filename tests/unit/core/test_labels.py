"""Labels: any value is one word, and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.labels import label, value_of


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_value_is_one_word_and_comes_back(first: str, second: str) -> None:
    labels = f"{label('tag', first)} {label('tenant', second)}"
    assert len(labels.split()) == 2
    assert value_of(labels, "tag") == first.encode(errors="replace").decode()
    assert value_of(labels, "tenant") == second.encode(errors="replace").decode()


def test_no_value_has_no_label() -> None:
    assert label("tenant", "") == value_of("tag=tenant=a", "tenant") == value_of("", "tag") == ""
