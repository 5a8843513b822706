"""The end of data is found wherever chunks are cut, and dot-stuffing is undone exactly once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.sink.reading import ContentCollector

_END = b".\r\n"


def stuffed(content: bytes) -> bytes:
    """What a client sends for a content that is empty or ends in CRLF."""
    lines = content.split(b"\r\n")
    return b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines) + _END


def collect(chunks: list[bytes], *, max_size: int = 1 << 20) -> tuple[bytes, bytes, bool]:
    """Content, what follows the end, and whether it was too large."""
    collector = ContentCollector(max_size=max_size)
    for index, chunk in enumerate(chunks):
        rest = collector.take(chunk)
        if rest is not None:
            content = collector.content()
            return content, rest + b"".join(chunks[index + 1 :]), collector.oversize
    raise AssertionError("no end of data")


def octets(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


CONTENTS = [
    b"",
    b"\r\n",
    b"a\r\n",
    b".\r\n",
    b"..\r\n",
    b".a\r\n.b\r\n",
    b"Subject: x\r\n\r\n.\r\n..\r\n...\r\n",
    b"\r\n.\r\n.\r\n",
    b"bare\n.\n\r.\r lines\r\n",
    b"a\n.\r\n",
    b"\x00\xff\r\n",
]


@pytest.mark.parametrize("content", CONTENTS)
def test_content_arrives_as_it_was(content: bytes) -> None:
    wire = stuffed(content) + b"RSET\r\n"
    assert collect([wire]) == (content, b"RSET\r\n", False)
    assert collect(octets(wire)) == (content, b"RSET\r\n", False)


@pytest.mark.parametrize("false_end", [b"a\n.\n", b"a\r.\r", b"a\r\n.\n", b"a\n.\r\n", b"a.\r\n"])
def test_nothing_but_the_true_end_ends_a_message(false_end: bytes) -> None:
    assert ContentCollector(max_size=100).take(false_end + b"MAIL FROM:<>\r\n") is None


@given(
    st.lists(st.sampled_from([b"\r\n", b".", b"\r", b"\n", b"a"]), max_size=40).map(b"".join),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(0, 12),
)
def test_cuts_change_nothing(text: bytes, cuts: list[int], max_size: int) -> None:
    wire = text + b"\r\n.\r\nrest"
    places = sorted({0, len(wire), *(min(cut, len(wire)) for cut in cuts)})
    chunks = [wire[a:b] for a, b in pairwise(places)]
    assert collect(chunks) == collect([wire]) == collect(octets(wire))
    assert collect(chunks, max_size=max_size) == collect([wire], max_size=max_size)


def test_size_is_counted_without_stuffing() -> None:
    wire = stuffed(b".\r\n" * 10)
    assert collect([wire], max_size=30) == (b".\r\n" * 10, b"", False)
    assert collect([wire], max_size=29) == (b"", b"", True)


def test_too_large_a_message_is_not_kept_but_its_end_is_found() -> None:
    chunks = [b"x" * 1000] * 100 + [b"\r\n.\r\nQUIT\r\n"]
    assert collect(chunks, max_size=5000) == (b"", b"QUIT\r\n", True)
