"""Transparency, the real end, its look-alikes, and hops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.submit.message.body import BodyReader, HopCounter, LineLimit


def read(data: bytes, step: int = 0, *, normalize: bool = True) -> tuple[bytes, BodyReader, bytes]:
    """Content, reader, and what was never fed, fed in chunks of `step` octets (0 = at once)."""
    reader = BodyReader(normalize=normalize)
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
    (b"\x01\xff\r\n.\r\n", b"\x01\xff\r\n"),
    (b"x" * 5000 + b"\r\n.\r\n", b"x" * 5000 + b"\r\n"),
]

LF_LINES = [
    (b"a\nb\n\r\n.\r\n", b"a\r\nb\r\n\r\n"),
    (b"a\n.\nb\r\n.\r\n", b"a\r\n\r\nb\r\n"),
    (b"a\n.\r\nb\r\n.\r\n", b"a\r\n\r\nb\r\n"),
    (b"a\r\n.\nb\r\n.\r\n", b"a\r\n\r\nb\r\n"),
    (b"a\n\n.\n\nb\r\n.\r\n", b"a\r\n\r\n\r\n\r\nb\r\n"),
    (b".\nb\r\n.\r\n", b"\r\nb\r\n"),
    (b"\n.\r\n.\r\n", b"\r\n\r\n"),
    (b"a\n..b\n.c\r\n.\r\n", b"a\r\n.b\r\nc\r\n"),
    (b"\n\r\n.\r\n", b"\r\n\r\n"),
]

WITH_CR = [
    b"a\r\n.\rMAIL FROM:<x@example.net>\r\n",
    b"a\r.\rMAIL FROM:<x@example.net>\r\n",
    b"a\r.\r\nMAIL FROM:<x@example.net>\r\n",
    b"a\r\n.\r\r\nMAIL FROM:<x@example.net>\r\n",
    b"a\n.\r\r\nMAIL FROM:<x@example.net>\r\n",
    b".\rQUIT\r\n",
    b"a\r\nb\nc\rd",
]


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("wire", "content"), GOOD)
def test_content_is_what_was_sent(wire: bytes, content: bytes, step: int) -> None:
    got, reader, rest = read(wire + b"QUIT\r\n", step)
    assert (got, reader.done, reader.fault, rest) == (content, True, "", b"QUIT\r\n")
    assert reader.size == len(content)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize(("wire", "content"), LF_LINES)
def test_a_bare_lf_becomes_crlf_and_ends_no_data(wire: bytes, content: bytes, step: int) -> None:
    got, reader, rest = read(wire + b"QUIT\r\n", step)
    assert (got, reader.done, reader.fault, rest) == (content, True, "", b"QUIT\r\n")
    assert reader.size == len(content)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("attack", [wire.removesuffix(b"\r\n.\r\n") for wire, _ in LF_LINES])
def test_a_bare_lf_can_be_refused(attack: bytes, step: int) -> None:
    _, reader, rest = read(attack + b"\r\n.\r\nNOOP\r\n", step, normalize=False)
    assert (reader.done, "LF" in reader.fault, rest) == (True, True, b"NOOP\r\n")


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("attack", WITH_CR)
def test_a_bare_cr_is_refused_behind_the_real_end(attack: bytes, step: int, normalize: bool) -> None:
    _, reader, rest = read(attack + b"\r\n.\r\nNOOP\r\n", step, normalize=normalize)
    assert (reader.done, bool(reader.fault), rest) == (True, True, b"NOOP\r\n")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_nul_is_refused(step: int) -> None:
    _, reader, rest = read(b"a\0b\r\n.\r\nNOOP\r\n", step)
    assert ("NUL" in reader.fault, rest) == (True, b"NOOP\r\n")


WIRES = st.lists(
    st.sampled_from([b"\r", b"\n", b".", b"a", b"\r\n", b"\r\n.", b"\n.", b"\n.\n", b"\n.\r\n"]), max_size=30
).map(b"".join)


@pytest.mark.parametrize("normalize", [True, False])
@given(wire=WIRES, data=st.data())
def test_the_cut_makes_no_difference(normalize: bool, wire: bytes, data: st.DataObject) -> None:
    wire += b"\r\n.\r\n"
    whole, one, rest = read(wire, normalize=normalize)
    reader = BodyReader(normalize=normalize)
    content = b""
    position = 0
    while not reader.done:
        step = data.draw(st.integers(1, 6))
        content += reader.feed(wire[position : position + step])
        position += step
    assert (content, bool(reader.fault), reader.size) == (whole, bool(one.fault), one.size)
    assert reader.rest + wire[position:] == rest


@given(WIRES)
def test_what_is_taken_has_only_whole_line_ends(wire: bytes) -> None:
    content, reader, _ = read(wire + b"\r\n.\r\n")
    if not reader.fault:
        assert content.replace(b"\r\n", b"").count(b"\r") == 0
        assert content.replace(b"\r\n", b"").count(b"\n") == 0


@given(WIRES)
def test_only_the_standard_end_is_one(wire: bytes) -> None:
    whole = wire + b"\r\n.\r\n"
    end = (b"\r\n" + whole).index(b"\r\n.\r\n") + 3
    assert read(whole)[2] == whole[end:]


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\r", b"").replace(b"\n", b""))))
def test_stuffing_is_undone(end: bytes, lines: list[bytes]) -> None:
    content = b"".join(line + b"\r\n" for line in lines)
    stuffed = b"".join((b"." if line[:1] == b"." else b"") + line + end for line in lines)
    if end == b"\n" and lines:
        stuffed = stuffed.removesuffix(b"\n") + b"\r\n"
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


@given(st.lists(st.sampled_from([b"a", b"bcd", b"\r\n"])), st.integers(1, 5), st.integers(1, 6))
def test_a_long_line_is_found_however_it_is_cut(parts: list[bytes], size: int, most: int) -> None:
    content = b"".join(parts)
    limit = LineLimit(most)
    kept = all(limit.keeps(content[start : start + size]) for start in range(0, len(content), size))
    assert kept is (max(map(len, content.split(b"\r\n"))) <= most)
