"""Content in chunks: cutting, and a handle that reads one at a time."""

from __future__ import annotations

import pytest

from mqcd.core.errors import ContentUnavailable
from mqcd.stores.chunked import ChunkedContent, cut


@pytest.mark.parametrize("octets", [0, 1, 4, 5, 8])
def test_chunks_join_to_the_content(octets: int) -> None:
    content = b"x" * octets
    chunks = cut(content, 4)
    assert b"".join(chunks) == content
    assert [len(each) for each in chunks[:-1]] == [4] * (len(chunks) - 1)


async def test_each_chunk_is_read_once_and_released_once() -> None:
    chunks = cut(b"abcdefghij", 4)
    asked: list[int] = []
    released: list[int] = []

    async def chunk(number: int) -> bytes:
        asked.append(number)
        return chunks[number]

    content = ChunkedContent("it", 10, 4, chunk, lambda: released.append(1))
    read = []
    while part := await content.read(3):
        read.append(part)
    assert read == [b"abc", b"d", b"efg", b"h", b"ij"]
    assert asked == [0, 1, 2]
    content.close()
    content.close()
    assert released == [1]
    with pytest.raises(ValueError, match="closed"):
        await content.read(1)


async def test_a_chunk_that_was_cut_off_is_an_error() -> None:
    async def chunk(number: int) -> bytes:
        return b"ab"

    content = ChunkedContent("message 7", 10, 4, chunk)
    assert await content.read(4) == b"ab"
    with pytest.raises(ContentUnavailable, match="message 7"):
        await content.read(4)
