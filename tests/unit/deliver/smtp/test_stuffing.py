"""Dots on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.deliver.smtp.commands import DotStuffer


def wire(chunks: list[bytes]) -> bytes:
    stuffer = DotStuffer()
    return b"".join([stuffer.stuff(chunk) for chunk in chunks]) + stuffer.final()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", b".\r\n"),
        (b".", b"..\r\n.\r\n"),
        (b".\r\n", b"..\r\n.\r\n"),
        (b"a\r\n.\r\n..b\r\n", b"a\r\n..\r\n...b\r\n.\r\n"),
        (b"no final newline", b"no final newline\r\n.\r\n"),
        (b"a.b\r\n", b"a.b\r\n.\r\n"),
        (b"a\n.b\r\n", b"a\n.b\r\n.\r\n"),
    ],
)
def test_dots_that_begin_a_line_are_doubled(content: bytes, expected: bytes) -> None:
    assert wire([content]) == expected


_CONTENT = st.lists(st.sampled_from([b".", b"\r\n", b"\r", b"\n", b"x"]), max_size=12).map(b"".join)


@given(_CONTENT, st.integers(1, 4))
def test_however_content_is_cut_the_wire_is_the_same(content: bytes, step: int) -> None:
    cut = [content[start : start + step] for start in range(0, len(content), step)]
    assert wire(cut) == wire([content])


@given(_CONTENT)
def test_the_receiver_gets_back_what_was_sent(content: bytes) -> None:
    sent = b"\r\n" + wire([content])
    body, end, rest = sent.partition(b"\r\n.\r\n")
    assert (end, rest) == (b"\r\n.\r\n", b"")
    received = (body + b"\r\n")[2:].replace(b"\r\n.", b"\r\n.")
    undone = (b"\r\n" + received).replace(b"\r\n..", b"\r\n.")[2:]
    assert undone == content or undone == content + b"\r\n"
