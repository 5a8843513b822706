"""SASLprep by the examples of RFC 4013, 3."""

from __future__ import annotations

import pytest

from mqcd.core.errors import DecodeError
from mqcd.submit.auth.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"),
     ("a\u00a0b", "a b"), ("\u0627\u0661\u0627", "\u0627\u0661\u0627")],
)  # fmt: skip
def test_texts_are_prepared(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "", "\u00ad", "a\tb", "\u0627a\u0627"])
def test_prohibited_texts_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        saslprep(text)
