"""Dots go once, however the octets are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.smtp.transparency import unstuff
from mqcd.deliver.smtp.commands import DotStuffer

octets = st.lists(st.sampled_from([b".", b"\r", b"\n", b"\r\n", b"\r\n.", b"a"])).map(b"".join)


@pytest.mark.parametrize(
    ("stuffed", "plain"),
    [
        (b"", b""),
        (b"..", b"."),
        (b".", b""),
        (b"a\r\n..\r\n...b\r\n", b"a\r\n.\r\n..b\r\n"),
        (b"a\n..b\r..c", b"a\n..b\r..c"),
        (b"\r\n", b"\r\n"),
        (b"\r", b"\r"),
    ],
)
def test_the_first_dot_of_a_line_goes(stuffed: bytes, plain: bytes) -> None:
    assert b"".join(unstuff([stuffed])) == plain
    assert b"".join(unstuff(stuffed[i : i + 1] for i in range(len(stuffed)))) == plain


@given(octets, st.lists(st.integers(1, 5)))
def test_it_undoes_what_stuffing_does(plain: bytes, cuts: list[int]) -> None:
    stuffed = DotStuffer().stuff(plain)
    chunks = []
    for cut in cuts:
        chunks.append(stuffed[:cut])
        stuffed = stuffed[cut:]
    assert b"".join(unstuff([*chunks, stuffed])) == plain
