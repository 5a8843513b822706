"""Transparency, the real end, its look-alikes, and hops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.body import BodyReader, HopCounter


def read(data: bytes, step: int = 0) -> tuple[bytes, BodyReader, bytes]:
    """Content, reader, and what was never fed, fed in chunks of `step` octets (0 = at once)."""
    reader = BodyReader()
    content = b""
    step = step or len(data)
    position = 0
    while position < len(data) and not reader.done:
        content += reader.feed(data[position : position + step])
        position += step
    return content, reader, reader.rest + data[position:]


GOOD = [
    (b".\r\n", b""),
    (b"\r\n.\r\n", b"\r\n"),
    (b"a\r\n.\r\n", b"a\r\n"),
    (b"..\r\n.\r\n", b".\r\n"),
    (b"..a\r\n...\r\n.\r\n", b".a\r\n..\r\n"),
    (b".a\r\n.\r\n", b"a\r\n"),
    (b"a\r\n\r\n..\r\n\r\n.\r\n", b"a\r\n\r\n.\r\n\r\n"),
    (b"\x00\xff\r\n.\r\n", b"\x00\xff\r\n"),
    (b"x" * 5000 + b"\r\n.\r\n", b"x" * 5000 + b"\r\n"),
]

SMUGGLED = [
    b"a\n.\nMAIL FROM:<x@example.net>\r\n",
    b"a\n.\r\nMAIL FROM:<x@example.net>\r\n",
    b"a\r\n.\nMAIL FROM:<x@example.net>\r\n",
    b"a\r\n.\rMAIL FROM:<x@example.net>\r\n",
    b"a\r.\rMAIL FROM:<x@example.net>\r\n",
    b"a\r.\r\nMAIL FROM:<x@example.net>\r\n",
    b"a\r\n.\r\r\nMAIL FROM:<x@example.net>\r\n",
    b"a\n\r\nb\r\n",
    b".\nQUIT\r\n",
    b".\rQUIT\r\n",
    b"\n.\n",
    b"a\r\n\n.\r\n",
]


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("wire", "content"), GOOD)
def test_content_is_what_was_sent(wire: bytes, content: bytes, step: int) -> None:
    got, reader, rest = read(wire + b"QUIT\r\n", step)
    assert (got, reader.done, reader.bare, rest) == (content, True, False, b"QUIT\r\n")
    assert reader.size == len(content)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("attack", SMUGGLED)
def test_no_look_alike_is_an_end(attack: bytes, step: int) -> None:
    _, reader, rest = read(attack + b"\r\n.\r\nNOOP\r\n", step)
    assert (reader.done, reader.bare, rest) == (True, True, b"NOOP\r\n")


@given(st.lists(st.sampled_from([b"\r", b"\n", b".", b"a", b"\r\n", b"\r\n.", b"."]), max_size=30), st.data())
def test_the_cut_makes_no_difference(parts: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(parts) + b"\r\n.\r\n"
    whole, one, rest = read(wire)
    reader = BodyReader()
    content = b""
    position = 0
    while not reader.done:
        step = data.draw(st.integers(1, 6))
        content += reader.feed(wire[position : position + step])
        position += step
    assert (content, reader.bare, reader.size) == (whole, one.bare, one.size)
    assert reader.rest + wire[position:] == rest


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\r", b"").replace(b"\n", b""))))
def test_stuffing_is_undone(lines: list[bytes]) -> None:
    content = b"".join(line + b"\r\n" for line in lines)
    stuffed = b"".join((b"." if line[:1] == b"." else b"") + line + b"\r\n" for line in lines)
    assert read(stuffed + b".\r\n")[0] == content


HEADER = b"Received: from a\r\n\tby b\r\nreceived: c\r\nX-Received: d\r\nRECEIVED: e\r\n"


@pytest.mark.parametrize("step", [1, 3, 11, 1000])
@pytest.mark.parametrize(
    ("content", "hops"),
    [
        (HEADER + b"\r\nReceived: in the body\r\n", 3),
        (b"\r\nReceived: in the body\r\n", 0),
        (b"Subject: a\r\n Received: folded\r\n\r\n", 0),
        (HEADER, 3),
        (b"", 0),
    ],
)
def test_hops(content: bytes, hops: int, step: int) -> None:
    counter = HopCounter()
    for position in range(0, len(content), step):
        counter.feed(content[position : position + step])
    assert counter.hops == hops
