"""The end of data is found wherever chunks are cut, and dot-stuffing is undone exactly once."""

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


def test_size_is_counted_without_stuffing() -> None:
    wire = stuffed(b".\r\n" * 10)
    assert collect([wire], max_size=30) == (b".\r\n" * 10, b"", False)
    assert collect([wire], max_size=29) == (b"", b"", True)


def test_too_large_a_message_is_not_kept_but_its_end_is_found() -> None:
    chunks = [b"x" * 1000] * 100 + [b"\r\n.\r\nQUIT\r\n"]
    assert collect(chunks, max_size=5000) == (b"", b"QUIT\r\n", True)
