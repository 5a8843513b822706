"""Versions are told apart by their numbers, and the newest one is named where it can be."""

from __future__ import annotations

import pytest

from mqcd import __version__
from mqcd.queue.format.versions import newest, unknown


@pytest.mark.parametrize(
    ("one", "other"), [("0.9.0", "0.10.0"), ("", "0.0.1"), ("1.0", "1.0.1"), ("2.0.0rc1", "10.0.0")]
)
def test_the_later_one_is_the_newest_whichever_comes_first(one: str, other: str) -> None:
    assert newest(one, other) == newest(other, one) == other


@pytest.mark.parametrize("writer", ["", None, 7, "0.0.1", __version__, "nonsense"])
def test_who_is_no_newer_one_is_not_named(writer: object) -> None:
    assert unknown("format 2", writer) == "format 2 is not known here; a newer mqcd reads it"


def test_a_newer_one_is_named() -> None:
    assert unknown("format 2", "99.1.0") == "format 2 is not known here; mqcd 99.1.0 reads it"
